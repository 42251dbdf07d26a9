"""Recent events of clients, for monitoring: which joined, left or were refused. They decide nothing."""

from collections import deque
from typing import Literal

from msgspec import Struct

MAX_VISITS = 256
MAX_REFUSALS = 64

Kind = Literal["joined", "left", "lost", "refused", "barred"]


class ClientEvent(Struct, frozen=True):
    """An event of a client, or all refusals of it for one reason; `client` is empty if the client is unknown."""

    at: float  # the node's own clock; of refusals, the latest
    kind: Kind
    client: str
    what: str  # the draft model, the refusal's code, or why the client was barred
    num_times: int = 1
    why: str = ""  # the reason of a refusal that keeps a draft node out


class ClientEvents:
    """Recent events of clients: which joined, left, were lost or barred, and which refusals were sent.

    Bounded however many peers connect and whatever they send: only the newest events are retained, and a client's
    refusals for the same reason share one event with a count.
    """

    def __init__(self) -> None:
        self._visits: deque[ClientEvent] = deque(maxlen=MAX_VISITS)
        # By client, code and reason, the newest last. Ordinary refusals must not push out those that keep nodes out.
        self._refusals: dict[tuple[str, str, str], ClientEvent] = {}
        self._keep_out: dict[tuple[str, str, str], ClientEvent] = {}
        # What operators were not told yet. Strangers' refusals must not push out the visits of clients.
        self._new_visits: deque[ClientEvent] = deque(maxlen=MAX_VISITS)
        self._new_refusals: deque[ClientEvent] = deque(maxlen=MAX_REFUSALS)

    def visit(self, kind: Kind, client: str, what: str, now: float) -> None:
        """Records that a client joined, left (sent Leave), was lost (silent for its lease), or was barred."""
        self._visits.append(ClientEvent(now, kind, client, what))
        self._new_visits.append(self._visits[-1])

    def refused(self, client: str, code: str, now: float, why: str = "") -> None:
        """Records a refused message. why: for operators, why the draft node is kept out; empty: it is not."""
        refusals = self._keep_out if why else self._refusals
        known = refusals.pop((client, code, why), None)
        event = ClientEvent(now, "refused", client, code, known.num_times + 1 if known else 1, why)
        refusals[client, code, why] = event
        if why and known is None:
            self._new_refusals.append(event)
        if len(refusals) > MAX_REFUSALS:
            del refusals[next(iter(refusals))]

    def __len__(self) -> int:
        """Number of retained events; untold ones count twice."""
        parts = self._visits, self._refusals, self._keep_out, self._new_visits, self._new_refusals
        return sum(map(len, parts))

    def take_news(self) -> list[ClientEvent]:
        """Returns the visits, and the first refusals that keep a draft node out, since the previous call.

        Oldest first; of very many visits or refusals, only the newest. A draft node that is refused repeatedly for the
        same reason is news once.
        """
        news = sorted([*self._new_visits, *self._new_refusals], key=lambda event: event.at)
        self._new_visits.clear()
        self._new_refusals.clear()
        return news

    def newest_first(self, most: int = 2 * (MAX_VISITS + MAX_REFUSALS)) -> list[ClientEvent]:
        """Returns so many events; of these up to half are refusals that keep a draft node out, if there are so many."""
        keep_out = [*self._keep_out.values()]
        first = keep_out[max(0, len(keep_out) - most // 2) :]
        others = [*self._visits, *self._refusals.values(), *keep_out[: len(keep_out) - len(first)]]
        others.sort(key=lambda event: event.at)
        return sorted(
            [*first, *others[max(0, len(others) - most + len(first)) :]], key=lambda event: event.at, reverse=True
        )

    def losses_since(self, since: float) -> list[ClientEvent]:
        """Returns the latest visit of each client that was lost at or after `since`, unless it joined or left since."""
        last = {event.client: event for event in self._visits if event.at >= since}
        return [event for event in last.values() if event.kind == "lost"]
