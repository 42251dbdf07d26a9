"""Drafts from afar: how long each session's must be to keep its TPOT, and how long rounds are best.

The paper's drafts are made beside the target, and all of a round's sessions have its cadence. A remote session has its
own: its cycle, from one of its rounds to the next, has its round trip and its drafting in it. A promise must not hang
on a draft node, which may leave or lie: so what is feasible is judged without drafts, unless it is said otherwise.
Knows nothing about how a cycle's time is modelled.
"""

from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import Literal, NamedTuple, TypeAlias

from goodspeed.admission.budget import Pace
from goodspeed.admission.lengths import accepted
from goodspeed.errors import ConfigError

Guarantee: TypeAlias = Literal["plain", "speculative"]
"""Whether promises can be kept without any draft, or hang on drafts as the paper's do."""

NUM_TIMES = 32
"""Lengths of a round that are tried, evenly on a logarithmic scale: neighbours differ by some percent."""

MOST_DRAFTED = 64
"""Longest draft that is looked at; its last tokens are seldom accepted."""

SLACK = 1e-9
"""By so much, as a share, a cycle may exceed what is kept: both are rounded."""


class Remote(NamedTuple):
    """A session whose drafts come from afar."""

    alpha: float  # acceptance rate
    tpot_s: float  # tau
    cycle_s: Callable[[int, float], float]  # c(S, T): seconds from round to round with drafts of S, rounds taking T
    number: int = 1  # of such sessions


class Plan(NamedTuple):
    """How rounds are made."""

    round_s: float  # T
    drafted: tuple[int, ...]  # S of each session
    prefill_rate: float  # tokens per second for prompts
    paces: tuple[Pace, ...]  # how each session decodes


def shortest(session: Remote, round_s: float, most: int = MOST_DRAFTED) -> int | None:
    """S_min(T): the shortest draft that keeps the session's TPOT in such rounds, mu(alpha, S) tau >= c(S, T).

    It is 0 where the round is no longer than the TPOT: without drafts the verify node goes on by itself. None where no
    draft up to `most` is enough.
    """
    if round_s <= session.tpot_s:
        return 0
    tokens = odds = 1.0
    for drafted in range(1, most + 1):
        odds *= session.alpha
        tokens += odds  # mu(alpha, S)
        if tokens * session.tpot_s >= session.cycle_s(drafted, round_s) * (1.0 - SLACK):
            return drafted
    return None


def plan(
    sessions: Sequence[Remote],
    tokens_in: Callable[[float], float],
    *,
    guarantee: Guarantee = "plain",
    most: int = MOST_DRAFTED,
    num_times: int = NUM_TIMES,
) -> Plan | None:
    """The round's length T, of those tried, that has most tokens for prompts: [tokens_in(T) - sum (T/c)(1 + S)] / T.

    Each session takes 1 + S tokens in each of its cycles c(S, T), with the shortest draft S that keeps its TPOT; at
    S = 0 its cycle is the round. Nobody is slowed down to its TPOT, so this has less to spare than `PB*`. None where
    no T is feasible: prompts have less than nothing, or a TPOT is not kept. With `guarantee="plain"` it is None also
    where only drafts make it feasible. most: longest draft.
    """
    plans = [one for one in _plans(sessions, tokens_in, most, num_times) if one.prefill_rate >= 0.0]
    if guarantee == "plain" and not any(sum(one.drafted) == 0 for one in plans):
        return None
    return max(plans, key=lambda one: one.prefill_rate, default=None)


def fastest(
    sessions: Sequence[Remote],
    tokens_in: Callable[[float], float],
    *,
    most: int = MOST_DRAFTED,
    num_times: int = NUM_TIMES,
    budget: float = inf,
) -> Plan | None:
    """As `plan`, of which some sessions may have to be left out: its rate may be below 0. None without sessions.

    budget: drafted tokens that a round may have.
    """
    plans = _plans(sessions, tokens_in, most, num_times, budget)
    return max(plans, key=lambda one: one.prefill_rate, default=None)


def _plans(
    sessions: Sequence[Remote], tokens_in: Callable[[float], float], most: int, num_times: int, budget: float = inf
) -> Iterator[Plan]:
    """All lengths of a round in which every TPOT is kept."""
    _check(sessions, num_times)
    if sessions:
        for round_s in _times(sessions, most, num_times):
            if found := _at(sessions, tokens_in, round_s, most, budget):
                yield found


def _at(
    sessions: Sequence[Remote], tokens_in: Callable[[float], float], round_s: float, most: int, budget: float
) -> Plan | None:
    """What rounds of this length bring; None where a TPOT is not kept, or a round would draft too many tokens."""
    drafted: list[int] = []
    paces: list[Pace] = []
    decoded = num_drafted = 0.0  # tokens in each round
    for session in sessions:
        length = shortest(session, round_s, most)
        if length is None:
            return None
        cycle_s = session.cycle_s(length, round_s) if length else round_s
        decoded += session.number * round_s / cycle_s * (1 + length)
        num_drafted += session.number * round_s / cycle_s * length
        drafted.append(length)
        paces.append(Pace(round_s, (1 + length) / cycle_s, length) if length else Pace.plain(session.tpot_s))
    if num_drafted > budget:
        return None
    return Plan(round_s, tuple(drafted), (tokens_in(round_s) - decoded) / round_s, tuple(paces))


def _times(sessions: Sequence[Remote], most: int, num_times: int) -> list[float]:
    """From the tightest TPOT, at which nothing has to be drafted, to what the longest drafts can make up for.

    Every TPOT within is tried beside, since a longer round makes that session draft.
    """
    first_s = min(session.tpot_s for session in sessions)
    last_s = min(session.tpot_s * accepted(session.alpha, most + 1) for session in sessions)
    ratio = (last_s / first_s) ** (1.0 / max(1, num_times - 1))
    times = {first_s * ratio**step for step in range(num_times)}
    return sorted(times | {session.tpot_s for session in sessions if first_s <= session.tpot_s <= last_s})


def _check(sessions: Sequence[Remote], num_times: int) -> None:
    for place, session in enumerate(sessions):
        if not (0.0 <= session.alpha <= 1.0 and 0.0 < session.tpot_s < inf):
            wanted = "an acceptance rate is from 0 to 1, and a TPOT finite and above 0"
            raise ConfigError(f"session {place} has alpha {session.alpha} and TPOT {session.tpot_s} s; {wanted}")
    if num_times < 1:
        raise ConfigError(f"num_times is {num_times}; one length of a round at least is tried")
