"""Episodes of faults as they really were: by them a text is excused for having failed or being late.

Times are those of one clock.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.faults.soak.schedule import VERIFY

RECOVERY_S = 15.0
"""The recovery after a fault: 6 s to notice a dead line (twice the timeout), a Hello's backoff of 5 s, and a replay."""

AWAY_LIMIT_S = 60.0
"""`--connect-timeout-s`: texts wait so long for an absent verify node."""


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
