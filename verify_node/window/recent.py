"""How fast things go: what was counted in the last seconds, from counters that only grow.

Nobody counts for it while nobody looks: it compares what it is shown now with what it was shown before.
"""

from collections import deque

from msgspec import Struct

from verify_node.daemon import VerifyDaemon

WINDOW_S = 10.0


class Rates(Struct, frozen=True):
    """Over the last `over_s` seconds; 0 when there is nothing yet to compare with."""

    over_s: float
    rounds_per_s: float
    tokens_per_s: float
    wall_s: dict[str, float]  # of the rounds in that time, by phase


class _Mark(Struct, frozen=True):
    """The counters at one moment."""

    at: float
    num_rounds: int
    num_tokens: int
    wall_s: dict[str, float]
    client_tokens: dict[str, int]


class Recent:
    """The moments of the last seconds at which somebody looked."""

    def __init__(self) -> None:
        self._marks: deque[_Mark] = deque()

    def look(self, daemon: VerifyDaemon, now: float) -> None:
        """Remembers the counters as they are."""
        core = daemon.core
        tokens = {name: client.num_tokens for name, client in core.scheduler.clients.items()}
        self._marks.append(_Mark(now, core.num_rounds, core.counts.num_tokens, dict(vars(daemon.wall)), tokens))
        while now - self._marks[0].at > WINDOW_S:
            self._marks.popleft()

    @property
    def rates(self) -> Rates:
        old, new = self._marks[0], self._marks[-1]
        elapsed_s = new.at - old.at
        per_s = 1 / elapsed_s if elapsed_s else 0.0
        wall_s = {phase: new.wall_s[phase] - old.wall_s[phase] for phase in new.wall_s}
        # A wait that began before is counted when it ends; only so much of it can lie within this time.
        busy_s = sum(wall_s.values()) - wall_s["receive"]
        wall_s["receive"] = min(wall_s["receive"], max(0.0, elapsed_s - busy_s))
        return Rates(
            elapsed_s, (new.num_rounds - old.num_rounds) * per_s, (new.num_tokens - old.num_tokens) * per_s, wall_s
        )

    def share(self, client: str) -> float:
        """Of the tokens delivered in this time."""
        old, new = self._marks[0], self._marks[-1]
        num_tokens = new.num_tokens - old.num_tokens
        own = new.client_tokens.get(client, 0) - old.client_tokens.get(client, 0)
        return own / num_tokens if num_tokens else 0.0
