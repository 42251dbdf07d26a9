"""Recent events of clients, for monitoring: which joined, left, were lost or barred, and which refusals were sent.

Bounded however many peers connect and whatever they send: only the newest entries are retained, and a client's refusals
for the same reason share one entry with a count. No I/O, no clock of its own; decides nothing.
"""

from collections import deque
from typing import Literal

from msgspec import Struct

MAX_VISITS = 256
MAX_REFUSALS = 64

Kind = Literal["joined", "left", "lost", "refused", "barred"]


class Entry(Struct, frozen=True):
    """One event; `client` is empty if the client is unknown."""

    at: float  # the node's own clock
    kind: Kind
    client: str
    what: str  # the draft model, the refusal's code, or why the client was barred
    num_times: int = 1
    why: str = ""  # the reason of a refusal that keeps a draft node out


class Diary:
    """The newest entries."""

    def __init__(self) -> None:
        self.num_visits = 0  # ever recorded: `visits_after` returns the new ones
        self._visits: deque[Entry] = deque(maxlen=MAX_VISITS)
        self._refusals: dict[tuple[str, str, str], Entry] = {}  # by client, code and reason, the newest last

    def visit(self, kind: Kind, client: str, what: str, now: float) -> None:
        """Records that a client joined, left (sent Leave), was lost (silent for its lease), or was barred."""
        self.num_visits += 1
        self._visits.append(Entry(now, kind, client, what))

    def refused(self, client: str, code: str, now: float, why: str = "") -> None:
        """Records a refused message. why: for operators, why the draft node is kept out; empty: it is not."""
        known = self._refusals.pop((client, code, why), None)
        num_times = known.num_times + 1 if known else 1
        self._refusals[client, code, why] = Entry(now, "refused", client, code, num_times, why)
        if len(self._refusals) > MAX_REFUSALS:
            del self._refusals[next(iter(self._refusals))]

    def __len__(self) -> int:
        """Number of retained entries."""
        return len(self._visits) + len(self._refusals)

    def visits_after(self, number: int) -> list[Entry]:
        """Retained visits after number `number`, oldest first."""
        num_new = min(self.num_visits - number, len(self._visits))
        return list(self._visits)[len(self._visits) - num_new :]

    def kept_out(self) -> list[Entry]:
        """Refusals that keep a draft node out, the newest last."""
        return [entry for entry in self._refusals.values() if entry.why]

    def entries(self) -> list[Entry]:
        """All entries, the newest first."""
        return sorted([*self._visits, *self._refusals.values()], key=lambda entry: entry.at, reverse=True)

    def losses_since(self, since: float) -> list[Entry]:
        """The latest visit of each client that was lost at or after `since` and has not joined or left afterwards."""
        last = {entry.client: entry for entry in self._visits if entry.at >= since}
        return [entry for entry in last.values() if entry.kind == "lost"]
