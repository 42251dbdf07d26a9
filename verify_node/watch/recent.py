"""Rates over the past WINDOW_S seconds, from counters that only grow.

Costs nothing without viewers: compares the counters at two looks.
"""

from collections import deque

from msgspec import Struct

from verify_node.core.core import VerifyCore
from verify_node.watch.round_events import WallTime

WINDOW_S = 10.0


class Rates(Struct, frozen=True):
    """Rates over the past `over_s` seconds; 0 before the second look."""

    over_s: float
    rounds_per_s: float
    tokens_per_s: float
    drafted_per_round: float  # drafted tokens verified; at most the budget
    wall_s: dict[str, float]  # seconds of the rounds in that time, by phase


class _Mark(Struct, frozen=True):
    """The counters at one moment."""

    at: float
    num_rounds: int  # finished
    num_tokens: int
    num_drafted: int
    wall_s: dict[str, float]
    client_tokens: dict[str, int]
    client_drafted: dict[str, int]


class Recent:
    """The counters at the looks of the past WINDOW_S seconds."""

    def __init__(self) -> None:
        self._marks: deque[_Mark] = deque()

    def look(self, core: VerifyCore, wall: WallTime, now: float) -> None:
        """Records the current counters."""
        counts, clients = core.counts, core.allocator.clients.items()
        mark = _Mark(
            at=now,
            num_rounds=counts.round_s.num_values,
            num_tokens=counts.num_tokens,
            num_drafted=counts.num_drafted,
            wall_s=dict(vars(wall)),
            client_tokens={name: client.num_tokens for name, client in clients},
            client_drafted={name: client.num_drafted for name, client in clients},
        )
        self._marks.append(mark)
        while now - self._marks[0].at > WINDOW_S:
            self._marks.popleft()

    @property
    def rates(self) -> Rates:
        old, new = self._marks[0], self._marks[-1]
        elapsed_s = new.at - old.at
        per_s = 1 / elapsed_s if elapsed_s else 0.0
        wall_s = {phase: new.wall_s[phase] - old.wall_s[phase] for phase in new.wall_s}
        # A wait is counted when it ends, even if it began before this time: limit it to the time not busy.
        busy_s = sum(wall_s.values()) - wall_s["receive"]
        wall_s["receive"] = min(wall_s["receive"], max(0.0, elapsed_s - busy_s))
        return Rates(
            over_s=elapsed_s,
            rounds_per_s=self._num_rounds * per_s,
            tokens_per_s=(new.num_tokens - old.num_tokens) * per_s,
            drafted_per_round=self._per_round(new.num_drafted - old.num_drafted),
            wall_s=wall_s,
        )

    def share(self, client: str) -> float:
        """Returns the client's share of the tokens delivered in the past WINDOW_S seconds."""
        old, new = self._marks[0], self._marks[-1]
        num_tokens = new.num_tokens - old.num_tokens
        own = new.client_tokens.get(client, 0) - old.client_tokens.get(client, 0)
        return own / num_tokens if num_tokens else 0.0

    def drafted_per_round(self, client: str) -> float:
        """Returns the client's part of `Rates.drafted_per_round`; the parts of all clients sum to it."""
        old, new = self._marks[0], self._marks[-1]
        return self._per_round(new.client_drafted.get(client, 0) - old.client_drafted.get(client, 0))

    @property
    def _num_rounds(self) -> int:
        return self._marks[-1].num_rounds - self._marks[0].num_rounds

    def _per_round(self, number: int) -> float:
        return number / self._num_rounds if self._num_rounds else 0.0
