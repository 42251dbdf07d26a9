"""Judges texts that have ended: as promised, excused by a fault, or a promise that broke. No I/O, no clock.

By the episodes of faults as they really were a text is excused for having failed or being late. Times are those of one
clock.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tests.faults.soak.plan import VERIFY
from tests.faults.texts import Comparison, Wanted

RECOVERY_S = 15.0
"""The recovery after a fault: 6 s to notice a dead line (twice the timeout), a Hello's backoff of 5 s, and a replay."""

AWAY_LIMIT_S = 60.0  # `--connect-timeout-s`: texts wait so long for an absent verify node


@dataclass(slots=True)
class Episode:
    """One fault as it happened."""

    kind: str
    whom: str
    began_at: float
    ended_at: float = float("inf")  # of a killed node: when it was ready again


@dataclass
class Weather:
    """All episodes so far."""

    episodes: list[Episode] = field(default_factory=list)

    def begin(self, kind: str, whom: str, now: float) -> Episode:
        episode = Episode(kind, whom, now)
        self.episodes.append(episode)
        return episode

    def present(self) -> list[Episode]:
        """The faults that are not over."""
        return [one for one in self.episodes if one.ended_at == float("inf")]

    def calm_s(self, name: str, since: float, until: float) -> float:
        """Seconds of that time in which nothing was wrong for a draft node, nor shortly before."""
        calm, at = 0.0, since
        for began, ended in sorted((one.began_at, one.ended_at + RECOVERY_S) for one in self._of(name)):
            calm += max(0.0, min(began, until) - at)
            at = max(at, min(ended, until))
        return calm + max(0.0, until - at)

    def is_stormy(self, name: str, now: float) -> bool:
        """True while something is wrong for a draft node, and for a moment after."""
        return any(one.began_at <= now <= one.ended_at + RECOVERY_S for one in self._of(name))

    def was_killed(self, name: str, since: float, until: float) -> bool:
        """True if a draft node was dead at any moment of that time."""
        return any(
            one.kind == "kill" and one.whom == name and one.began_at <= until and one.ended_at >= since
            for one in self.episodes
        )

    def was_away(self, name: str, since: float, until: float) -> bool:
        """True if within that time a draft node and the verify node were apart for as long as texts wait."""
        return any(
            one.ended_at - one.began_at + RECOVERY_S > AWAY_LIMIT_S and one.began_at <= until and one.ended_at >= since
            for one in self._of(name)
        )

    def _of(self, name: str) -> Iterator[Episode]:
        return (one for one in self.episodes if one.whom in (name, VERIFY))


CALM_LIMIT_S = 60.0
"""A text's deadline: so many seconds in which nothing was wrong for its node. It takes a few on a quiet machine."""

MAX_KEPT = 50  # broken promises that are told in full
Ending = Literal["finished", "left", "broke", "late"]
Verdict = Literal["exact", "near_tie", "complete", "left", "excused", "wrong", "broken", "late"]
BROKEN: tuple[Verdict, ...] = ("wrong", "broken", "late")


@dataclass(slots=True)
class Text:
    """One text as its user got it."""

    node: str
    rule: Literal["match", "ratio"]
    wanted: Wanted
    started_at: float
    tokens: list[str] = field(default_factory=list)
    ended_at: float | None = None
    ending: Ending | None = None
    reason: str = ""  # of its end, or what broke it

    def end(self, ending: Ending, reason: str, now: float) -> None:
        """Its first end counts."""
        if self.ending is None:
            self.ending, self.reason, self.ended_at = ending, reason, now

    def is_late(self, weather: Weather, now: float) -> bool:
        return self.ending is None and weather.calm_s(self.node, self.started_at, now) > CALM_LIMIT_S


Compare = Callable[[Wanted, Sequence[str], bool], Comparison]
"""The type of `texts.compare`; its last argument tells if the text is complete."""


@dataclass
class Tally:
    """The verdicts on all texts."""

    verdicts: dict[str, int] = field(default_factory=dict)
    num_tokens: int = 0  # of all texts, also of those that did not come to an end
    num_compared: int = 0  # tokens of texts under match, each held against the target's own
    num_near_ties: int = 0  # positions
    broken: list[str] = field(default_factory=list)

    @property
    def num_broken(self) -> int:
        return sum(self.verdicts.get(name, 0) for name in BROKEN)

    def take(self, text: Text, weather: Weather, compare: Compare) -> Verdict:
        comparison = compared(text, compare)
        verdict, why = judge(text, weather, comparison)
        self.verdicts[verdict] = self.verdicts.get(verdict, 0) + 1
        self.num_tokens += len(text.tokens)
        if comparison is not None:
            self.num_compared += len(text.tokens)
            self.num_near_ties += comparison.num_near_ties
        if verdict in BROKEN and len(self.broken) < MAX_KEPT:
            self.broken.append(f"{verdict}: {why}: {describe(text)}")
        return verdict


def compared(text: Text, compare: Compare) -> Comparison | None:
    """Under match every token is compared, also of a text without an end; None under ratio: it is not repeatable."""
    if text.rule == "ratio" or not text.tokens:
        return None
    return compare(text.wanted, text.tokens, text.ending == "finished")


def judge(text: Text, weather: Weather, comparison: Comparison | None) -> tuple[Verdict, str]:
    """The verdict, and why where a promise broke."""
    ended_at = text.started_at if text.ended_at is None else text.ended_at
    if comparison is not None and comparison.verdict == "wrong":
        return "wrong", comparison.what
    match text.ending:
        case "finished":
            return _of_finished(text, comparison)
        case "left":
            return "left", ""
        case "late" | None:
            return "late", f"no end after {CALM_LIMIT_S:g} s in which nothing was wrong"
        case "broke":
            when = text.node, text.started_at, ended_at
            return ("excused", "") if weather.was_killed(*when) or weather.was_away(*when) else ("broken", text.reason)


def _of_finished(text: Text, comparison: Comparison | None) -> tuple[Verdict, str]:
    num_tokens, wanted = len(text.tokens), text.wanted.max_tokens
    if text.reason == "stop":
        return "wrong", "it ended before its length"
    if num_tokens != wanted:
        return "wrong", f"{num_tokens} tokens instead of {wanted}"
    if text.rule == "ratio":
        return "complete", ""
    return ("near_tie" if comparison is not None and comparison.num_near_ties else "exact"), ""


def describe(text: Text) -> str:
    took = (text.ended_at or text.started_at) - text.started_at
    return (
        f"text at {text.node} ({text.rule}), begun at {text.started_at:.1f} s, took {took:.1f} s, "
        f"{len(text.tokens)} of {text.wanted.max_tokens} tokens, {text.ending} ({text.reason}), {text.wanted.sampling}"
    )
