"""Recent events of the clients, for those who watch: who joined, left, was lost or barred, what was refused.

Bounded, however many peers come and go and whatever they send: the newest are kept, and what is refused to one client
for the same reason is one entry with a count. No I/O, no clock of its own; decides nothing.
"""

from collections import deque
from typing import Literal

from msgspec import Struct

MAX_VISITS = 256
MAX_REFUSALS = 64

Kind = Literal["joined", "left", "lost", "refused", "barred"]


class Entry(Struct, frozen=True):
    """One thing that happened; `client` is empty where nobody said who it was."""

    at: float  # the node's own clock
    kind: Kind
    client: str
    what: str  # the draft model, the refusal's code, or why it was barred
    num_times: int = 1
    why: str = ""  # of a refusal that keeps a draft node out


class Diary:
    """The newest entries."""

    def __init__(self) -> None:
        self.num_visits = 0  # ever noted: `visits_after` gives those that are new
        self._visits: deque[Entry] = deque(maxlen=MAX_VISITS)
        self._refusals: dict[tuple[str, str, str], Entry] = {}  # by client, code and why, the newest last

    def visit(self, kind: Kind, client: str, what: str, now: float) -> None:
        """Notes that a client joined, left (it said so), was lost (it was silent for its lease), or was barred."""
        self.num_visits += 1
        self._visits.append(Entry(now, kind, client, what))

    def refused(self, client: str, code: str, now: float, why: str = "") -> None:
        """A message was refused. why: it keeps the draft node out, and its operator may be asked what that is about."""
        known = self._refusals.pop((client, code, why), None)
        num_times = known.num_times + 1 if known else 1
        self._refusals[client, code, why] = Entry(now, "refused", client, code, num_times, why)
        if len(self._refusals) > MAX_REFUSALS:
            del self._refusals[next(iter(self._refusals))]

    def __len__(self) -> int:
        """Entries that are kept."""
        return len(self._visits) + len(self._refusals)

    def visits_after(self, number: int) -> list[Entry]:
        """Visits after number `number`, oldest first; only the newest are kept."""
        num_new = min(self.num_visits - number, len(self._visits))
        return list(self._visits)[len(self._visits) - num_new :]

    def kept_out(self) -> list[Entry]:
        """Refusals that keep a draft node out, the newest last."""
        return [entry for entry in self._refusals.values() if entry.why]

    def entries(self) -> list[Entry]:
        """All entries, the newest first."""
        return sorted([*self._visits, *self._refusals.values()], key=lambda entry: entry.at, reverse=True)

    def losses_since(self, since: float) -> list[Entry]:
        """The last visit of each client that was lost at or after `since` and has not joined or left after that."""
        last = {entry.client: entry for entry in self._visits if entry.at >= since}
        return [entry for entry in last.values() if entry.kind == "lost"]
