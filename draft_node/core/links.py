"""The links to verify nodes, by number: assigns sessions to links, and decides when to try another verify node.

New sessions go to the home link. The home changes when it is lost and another link is connected, or when a verify node
redirects all new sessions. A session stays on its link until the link has been lost for GRACE_S: its verify node has
the text in its KV cache, and a connection that merely broke is back sooner.

Link 0 leads to the first verify node in the options. Numbers are not reused, so that a late message is not taken for
another link's. `session_router.py` carries out the decisions.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from draft_node.core.link import VerifyLink
from draft_node.core.verify_nodes import Address, VerifyNodes
from goodspeed.wire.handshake import Welcome

GRACE_S = 0.5
"""Seconds that sessions wait for a link that broke; for a link lost by its silence, the wait is already over."""

STOP_JITTER_S = 0.1
JITTER_S = 0.5
"""Longest random extra wait in seconds: STOP_JITTER_S after an orderly stop, else JITTER_S. All draft nodes of a verify
node lose it at the same moment when it stops or dies."""

TRY_S = 1.0
"""Seconds without an answer before the next verify node is tried in addition."""

REDIRECT_S = 3.0
"""Seconds that a redirected session waits for its verify node before it goes to any other."""

IDLE_S = 10.0
"""Seconds without sessions after which a link is closed, unless it is the home."""

MAX_TRIED = 4
"""Links that may be connecting at once, in addition to the home."""


@dataclass(slots=True)
class Known:
    """One link with its address and timers."""

    link: VerifyLink
    address: Address
    idle_since: float
    moves_at: float = 0.0  # until then the sessions of a lost link wait for it


class Links:
    """All links of this node, and the sessions on them."""

    def __init__(self, first: VerifyLink, addresses: Sequence[Address], random: Random | None = None) -> None:
        """first: the link to the first of `addresses`. addresses: the verify nodes in the options."""
        self._random = random if random is not None else Random(first.hello.boot_id)
        self.verify_nodes = VerifyNodes(addresses, self._random)
        self.home = 0
        began = first.away_since or 0.0
        self._known = {0: Known(first, addresses[0], began, began + first.timeout_s)}
        self._num_made = 1
        self._on: dict[bytes, int] = {}  # each session's link
        self._sent_until: dict[bytes, float] = {}  # redirected sessions: when they stop waiting for their link
        self._home_to_be: int | None = None  # becomes the home once it is connected
        self._try_at = began + TRY_S  # when the next verify node may be tried
        self._tried_in_vain: set[str] = set()  # endpoints whose links were dropped while not connected

    def __contains__(self, number: int) -> bool:
        return number in self._known

    def __getitem__(self, number: int) -> VerifyLink:
        return self._known[number].link

    def __iter__(self) -> Iterator[int]:
        return iter(tuple(self._known))

    @property
    def link(self) -> VerifyLink:
        return self._known[self.home].link

    @property
    def trouble(self) -> str | None:
        """Why a verify node refuses this draft node, the home first, and what to do; None: none is known to."""
        known = [self._known[self.home], *self._known.values()]
        troubled = next((one for one in known if one.link.trouble), None)
        if troubled is None:
            return None
        if len(self._known) == 1:
            return troubled.link.trouble
        return f"{troubled.address.endpoint}: {troubled.link.trouble}"

    @property
    def is_anybody_there(self) -> bool:
        return any(known.link.connected for known in self._known.values())

    @property
    def welcomes(self) -> list[Welcome]:
        links = [known.link for known in self._known.values() if known.link.connected]
        return [link.welcome for link in links if link.welcome is not None]

    def on(self, session_id: bytes) -> int | None:
        """Returns a session's link; None if it has none."""
        number = self._on.get(session_id)
        return number if number in self._known else None

    def forget(self, session_id: bytes) -> None:
        self._on.pop(session_id, None)
        self._sent_until.pop(session_id, None)

    # -- what becomes of a link ------------------------------------------------------------------------------------

    def welcomed(self, number: int, welcome: Welcome) -> list[int]:
        """Handles a completed handshake. Returns other links to the same process, to be dropped without a Leave.

        The verify node knows this node by its newest connection only.
        """
        known = self._known[number]
        self.verify_nodes.found(known.address, welcome.target_fingerprint)
        self._tried_in_vain.discard(known.address.endpoint)
        same = [
            other
            for other in self._known
            if other != number and self._leads_to(other, welcome, known.address.server_key)
        ]
        for session_id, on in list(self._on.items()):
            if on in same:
                self._on[session_id] = number
        if not self.link.connected or self.home in same or self._home_to_be == number:
            self.home, self._home_to_be = number, None
        return same

    def _leads_to(self, number: int, welcome: Welcome, server_key: str | None) -> bool:
        own = self._known[number].link
        if self._known[number].address.server_key != server_key:
            return False  # another node could claim the same boot id
        return own.connected and own.welcome is not None and own.welcome.boot_id == welcome.boot_id

    def lost(self, number: int, now: float, *, in_good_order: bool = False) -> None:
        """Notes a lost link. If it was the home, another connected link becomes the home: new sessions need not wait.

        in_good_order: the verify node announced that it stops, so that there is no wait for it.
        """
        known = self._known[number]
        is_waited_for = not in_good_order and not known.link.is_silent and self._others(number)
        jitter_s = self._random.random() * (STOP_JITTER_S if in_good_order else JITTER_S)
        known.moves_at = now + (GRACE_S if is_waited_for else 0.0) + jitter_s
        self._try_at = max(self._try_at, known.moves_at)
        if number == self.home:
            self.home = next((one for one, other in self._known.items() if other.link.connected), number)

    def _others(self, number: int) -> bool:
        """Returns whether there is another verify node to try."""
        return any(address != self._known[number].address for address in self.verify_nodes.candidates(None))

    def exclude(self, number: int) -> bool:
        """Excludes a verify node that refuses this draft node for good. Returns whether another is left.

        One that is draining counts: the texts there go on, and it may be back.
        """
        is_one_left = self.verify_nodes.exclude(self._known[number].address)
        return is_one_left or any(known.link.connected for one, known in self._known.items() if one != number)

    def drop(self, number: int) -> None:
        """Removes a link; its sessions have none then."""
        gone = self._known.pop(number)
        if not gone.link.connected:
            self._tried_in_vain.add(gone.address.endpoint)
        self._on = {session_id: on for session_id, on in self._on.items() if on != number}
        if self._home_to_be == number:
            self._home_to_be = None

    # -- where a session goes --------------------------------------------------------------------------------------

    def place(self, session_id: bytes, target: str | None, now: float) -> int | None:
        """Assigns a session to a connected link with its target, and returns that link; None: the session has to wait.

        target: fingerprint; None: any. If no reachable verify node may have the target, the session gets the home link,
        where it fails because the target is another.
        """
        own = self.on(session_id)
        if own is not None and not self[own].connected and now < self._waits_until(session_id, own):
            return None
        there = [number for number in (own, self.home, *self._known) if number is not None and self[number].connected]
        suited = [number for number in there if self._has(number, target)]
        if not suited and self.link.connected and not self._may_find_target(target, now):
            suited = [self.home]
        if not suited:
            return None
        self._on[session_id] = suited[0]
        self._sent_until.pop(session_id, None)
        return suited[0]

    def _may_find_target(self, target: str | None, now: float) -> bool:
        """Returns whether a verify node that may have this target has not yet failed to answer."""
        known = self._known.values()
        silent = {one.address.endpoint for one in known if one.link.away_s(now) > REDIRECT_S} | self._tried_in_vain
        return any(address.endpoint not in silent for address in self.verify_nodes.candidates(target))

    def _waits_until(self, session_id: bytes, own: int) -> float:
        return self._sent_until.get(session_id, self._known[own].moves_at)

    def send(self, session_id: bytes, address: Address, now: float, *, moves_home: bool) -> int | None:
        """Moves a redirected session to the link of an address. Returns the new link's number; None: the link existed.

        moves_home: that link becomes the home once it is connected.
        """
        linked = next((one for one, known in self._known.items() if known.address.endpoint == address.endpoint), None)
        to = self._make(address, now) if linked is None else linked
        self._on[session_id] = to
        self._sent_until[session_id] = now + REDIRECT_S
        if moves_home and self[to].connected:
            self.home, self._home_to_be = to, None
        elif moves_home:
            self._home_to_be = to
        return to if linked is None else None

    # -- which links there are -------------------------------------------------------------------------------------

    def address(self, number: int) -> Address:
        return self._known[number].address

    def next_to_try(self, wanted: Iterable[str | None], now: float) -> int | None:
        """Adds a link to the next verify node to try, and returns its number; None: none to try now.

        wanted: targets of waiting sessions. Adds a link if no connected link has one of these targets, or if the home
        is away. If the home is away, any verify node will do: it can refuse a session whose target exists nowhere.
        """
        if now < self._try_at:
            return None
        there = [number for number in self._known if self[number].connected]
        targets = [one for one in dict.fromkeys(wanted) if not any(self._has(number, one) for number in there)]
        if self.link.connected and not targets:
            return None
        self._try_at = now + TRY_S
        linked = {known.address.endpoint for known in self._known.values()}
        for target in targets if self.link.connected else [*targets, None]:
            for address in self.verify_nodes.candidates(target):
                if address.endpoint not in linked:
                    return self._make(address, now)
        return None

    def _has(self, number: int, target: str | None) -> bool:
        """Returns whether a connected link has this target, by its own Welcome, not by what siblings report."""
        welcome = self[number].welcome
        return target is None or (welcome is not None and welcome.target_fingerprint == target)

    def _make(self, address: Address, now: float) -> int:
        number, self._num_made = self._num_made, self._num_made + 1
        hello, timeout_s = self.link.hello, self.link.timeout_s
        self._known[number] = Known(VerifyLink.begin(hello, timeout_s, now), address, now, now + TRY_S)
        return number

    def useless(self, now: float) -> list[int]:
        """Returns the links to close: idle for IDLE_S, or the oldest if more than MAX_TRIED spare links connect."""
        used = set(self._on.values())
        spare = [one for one in self._known if one != self.home and one not in used]
        for number, known in self._known.items():
            if number not in spare:
                known.idle_since = now
        tried = [one for one in spare if not self[one].connected]
        gone = set(tried[: max(0, len(tried) - MAX_TRIED)])
        if self.link.connected:
            gone |= {one for one in spare if now - self._known[one].idle_since > IDLE_S}
        return sorted(gone)
