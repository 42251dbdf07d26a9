"""Whether a replica would promise a session its service level, judged from afar by its summary (SLOs-Serve, 4.2).

The summary stands for the replica: the same admission decides on it as on the replica's own book. Knows nothing about
which replica is chosen.
"""

from collections.abc import Iterator
from math import ceil, inf
from typing import NamedTuple

from msgspec.structs import replace

from goodspeed.admission import Ask, admit
from goodspeed.admission import Pace as Way
from goodspeed.admission.headroom import FIRST_TOKEN_S, FLOOR, SURE, headroom_s, planned_s, promised
from goodspeed.fair.latency.rounds import PlannedRounds
from goodspeed.fleet.replicas import MAX_OWED, Load, Owed


class Wish(NamedTuple):
    """A session that is to be served somewhere."""

    prompt_tokens: int  # to be read, of the prompt and what is committed
    deadline_s: float | None  # from now until its first token is due; None: it has no deadline
    tpot_s: float | None  # None: no rate
    pages: int  # in the worst case
    fingerprint: str = ""  # of the target that its text is of; "": any


def fits(load: Load, wish: Wish, now: float) -> bool:
    """Whether a replica with this summary would promise the session what it wishes.

    It is decided as there, from what the replica said when it told. What it owed by a time that has passed since is
    taken to be read: its sessions decode. Best effort is in none of its rounds.
    """
    if not load.promises:
        return False
    age_s = max(0.0, now - load.told_at)
    late = [one for one in load.owed if one.deadline_s <= age_s and one.deadline_s > 0.0]
    waiting = [one for one in load.owed if one not in late]
    decoding = [*_decoding(load), *(Way.plain(one.tpot_s) for one in late if one.tpot_s)]
    rounds = _rounds(load, wish)
    shortest_s = min([rounds.least_s, *(way.round_s for way in decoding), *(one.tpot_s or inf for one in waiting)])
    asks = [_owed(one, age_s, headroom_s(shortest_s)) for one in waiting]
    asks.append(_wished(wish, shortest_s))
    pages = max(0, load.free_pages - ceil(FLOOR * load.num_pages))
    return admit(asks, decoding=decoding, tokens_in=promised(rounds.tokens_in), pages=pages)[-1]


def num_promised(load: Load) -> int:
    """Sessions that the summary tells to be promised something."""
    return sum(pace.num_sessions for pace in load.paces) + len(load.owed)


def _decoding(load: Load) -> Iterator[Way]:
    """All sessions of one TPOT count as one that decodes as fast as these together."""
    for pace in load.paces:
        if pace.num_sessions:
            yield Way(pace.tpot_s, pace.num_sessions / pace.tpot_s)


def _rounds(load: Load, wish: Wish) -> PlannedRounds:
    """Returns the rounds of the promised sessions and the wished one, whose texts are as long as the open ones are."""
    promised = num_promised(load)
    share = min(1.0, promised / load.num_sessions) if load.num_sessions else 0.0
    context = share * load.context_tokens + wish.prompt_tokens
    return PlannedRounds(load.round_model, 1.0 + SURE * load.usual_error, load.max_round_tokens, promised + 1, context)


def _owed(one: Owed, age_s: float, early_s: float) -> Ask:
    return Ask(planned_s(one.deadline_s - age_s, early_s), one.prompt_tokens, one.tpot_s or None, promised=True)


def _wished(wish: Wish, shortest_s: float) -> Ask:
    due_s = FIRST_TOKEN_S if wish.deadline_s is None else wish.deadline_s
    early_s = headroom_s(shortest_s, inf if wish.tpot_s is None else wish.tpot_s)
    return Ask(due_s - early_s, wish.prompt_tokens, wish.tpot_s, wish.pages)


def with_one_more(load: Load, wish: Wish, now: float) -> Load:
    """What the summary says once the session is sent there, if that promises it what it wishes.

    So whoever sends several before the replica tells again does not send all of them into the same gap.
    """
    told = replace(
        load,
        num_sessions=load.num_sessions + 1,
        context_tokens=load.context_tokens + wish.prompt_tokens,
        free_pages=max(0, load.free_pages - wish.pages),
    )
    if wish.deadline_s is None and wish.tpot_s is None:
        return told  # it will be promised nothing
    due_s = now - load.told_at + (FIRST_TOKEN_S if wish.deadline_s is None else wish.deadline_s)
    sent = Owed(due_s, wish.prompt_tokens, wish.tpot_s, wish.pages)
    owed = sorted((*load.owed, sent), key=lambda one: one.deadline_s)
    return replace(told, owed=tuple(owed[:MAX_OWED]))
