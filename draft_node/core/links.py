"""The links to verify nodes, by number; one is the home. Which link each session is on, and when another is tried.

The home is where new sessions go. It stays the same until it is lost and another is there, or until a verify node says
that all new sessions are better off elsewhere. A session stays on its link until that is lost for GRACE_S, since its
verify node has its text in memory, and a connection that only broke is back before.

Link 0 is the first of the options. Numbers are not used again, so that nothing late is taken for another's. Knows
nothing about what sessions do; `openings.py` carries out what is returned here.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from draft_node.core.directory import Address, Directory
from draft_node.core.link import VerifyLink
from goodspeed.wire.handshake import Sibling, Welcome

GRACE_S = 0.5
"""A link that broke is waited for so long before its sessions go elsewhere; a silent one was waited for already."""

STOP_JITTER_S = 0.1
JITTER_S = 0.5
"""Up to so much longer, at random: all draft nodes of a verify node that stops, or dies, lose it at the same moment."""

TRY_S = 1.0
"""A verify node that does not answer for so long is not the only one that is tried."""

REDIRECT_S = 3.0
"""A session that was sent to a verify node which does not answer for so long goes to any other."""

IDLE_S = 10.0
"""A link without sessions that is not the home is given up after so long."""

MAX_TRIED = 4
"""Links that are waited for at once, beside the home."""


@dataclass(slots=True)
class Known:
    """One link, with what the link itself does not know."""

    link: VerifyLink
    address: Address
    idle_since: float
    moves_at: float = 0.0  # while it is away, its sessions wait for it until then


class Links:
    """All links of this node, and the sessions on them."""

    def __init__(self, first: VerifyLink, addresses: Sequence[Address], random: Random | None = None) -> None:
        """first: the link to the first of `addresses`, those of the options."""
        self._random = random if random is not None else Random(first.hello.boot_id)
        self.directory = Directory(addresses, self._random)
        self.home = 0
        began = first.away_since or 0.0
        self._known = {0: Known(first, addresses[0], began, began + first.timeout_s)}
        self._num_made = 1
        self._on: dict[bytes, int] = {}  # links of sessions
        self._sent_until: dict[bytes, float] = {}  # sessions that were redirected, and wait for their link
        self._home_to_be: int | None = None  # once it is there
        self._try_at = began + TRY_S
        self._tried_in_vain: set[str] = set()  # endpoints that never answered before they were given up

    def __contains__(self, number: int) -> bool:
        return number in self._known

    def __getitem__(self, number: int) -> VerifyLink:
        return self._known[number].link

    def __iter__(self) -> Iterator[int]:
        return iter(tuple(self._known))

    @property
    def link(self) -> VerifyLink:
        """The home's."""
        return self._known[self.home].link

    @property
    def is_anybody_there(self) -> bool:
        """True if a verify node is there at all."""
        return any(known.link.connected for known in self._known.values())

    @property
    def welcomes(self) -> list[Welcome]:
        """Returns the `Welcome` of each verify node that is there."""
        links = [known.link for known in self._known.values() if known.link.connected]
        return [link.welcome for link in links if link.welcome is not None]

    def on(self, session_id: bytes) -> int | None:
        """Returns the link of a session; None if it was on none yet."""
        number = self._on.get(session_id)
        return number if number in self._known else None

    def sessions_on(self, number: int) -> list[bytes]:
        return [session_id for session_id, on in self._on.items() if on == number]

    def forget(self, session_id: bytes) -> None:
        """The session is over."""
        self._on.pop(session_id, None)
        self._sent_until.pop(session_id, None)

    # -- what becomes of a link ------------------------------------------------------------------------------------

    def welcomed(self, number: int, welcome: Welcome) -> list[int]:
        """The handshake is done. Returns links that lead to the same process, and are to be given up without a word.

        It knows this node by the newest connection; the others are no use any more.
        """
        known = self._known[number]
        self.directory.found(known.address, welcome.target_fingerprint)
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
            return False  # another could say the same boot id
        return own.connected and own.welcome is not None and own.welcome.boot_id == welcome.boot_id

    def lost(self, number: int, now: float, *, in_good_order: bool = False) -> None:
        """Notes that it is away; another becomes the home if one is there, so that new sessions do not wait.

        in_good_order: its verify node said that it stops, so there is nothing to wait for.
        """
        known = self._known[number]
        is_waited_for = not in_good_order and not known.link.is_silent and self._others(number)
        jitter_s = self._random.random() * (STOP_JITTER_S if in_good_order else JITTER_S)
        known.moves_at = now + (GRACE_S if is_waited_for else 0.0) + jitter_s
        self._try_at = max(self._try_at, known.moves_at)
        if number == self.home:
            self._go_home()

    def _go_home(self) -> None:
        there = [number for number, known in self._known.items() if known.link.connected]
        if there:
            self.home = there[0]

    def _others(self, number: int) -> bool:
        """Returns whether there is any other verify node to go to."""
        return any(address != self._known[number].address for address in self.directory.candidates(None))

    def exclude(self, number: int) -> bool:
        """Its verify node will never take this draft node; returns whether there is any other to go to."""
        self.directory.exclude(self._known[number].address)
        return self._others(number)

    def drop(self, number: int) -> None:
        """The link is given up; its sessions are on none."""
        gone = self._known.pop(number)
        if not gone.link.connected:
            self._tried_in_vain.add(gone.address.endpoint)
        self._on = {session_id: on for session_id, on in self._on.items() if on != number}
        if self._home_to_be == number:
            self._home_to_be = None

    # -- where a session goes --------------------------------------------------------------------------------------

    def place(self, session_id: bytes, target: str | None, now: float) -> int | None:
        """Returns the link on which a session can be opened now, and puts it there; None: it has to wait.

        It is one that is connected, and has the session's target. Where no verify node may have that target any more,
        it is the home, whose target is another: the session ends by what it finds there.
        """
        own = self.on(session_id)
        if own is not None and not self[own].connected and now < self._waits_until(session_id, own):
            return None
        there = [number for number in (own, self.home, *self._known) if number is not None and self[number].connected]
        suited = [number for number in there if self._has(number, target)]
        if not suited and self.link.connected and not self._may_come(target, now):
            suited = [self.home]
        if not suited:
            return None
        self._on[session_id] = suited[0]
        self._sent_until.pop(session_id, None)
        return suited[0]

    def _may_come(self, target: str | None, now: float) -> bool:
        """Returns whether a verify node with this target may answer that has not been tried in vain."""
        known = self._known.values()
        silent = {one.address.endpoint for one in known if one.link.away_s(now) > REDIRECT_S} | self._tried_in_vain
        return any(address.endpoint not in silent for address in self.directory.candidates(target))

    def _waits_until(self, session_id: bytes, own: int) -> float:
        return self._sent_until.get(session_id, self._known[own].moves_at)

    def send(self, session_id: bytes, address: Address, now: float, *, moves_home: bool) -> int | None:
        """A verify node sent the session there. Returns the number of a new link if one has to be made.

        moves_home: whatever is opened from now on goes there, too, once that verify node is there.
        """
        linked = next((one for one, known in self._known.items() if known.address.endpoint == address.endpoint), None)
        to = self._make(address, now) if linked is None else linked
        self._on[session_id] = to
        self._sent_until[session_id] = now + REDIRECT_S
        if moves_home and self[to].connected:
            self.home = to
        elif moves_home:
            self._home_to_be = to
        return to if linked is None else None

    # -- which links there are -------------------------------------------------------------------------------------

    def learn(self, siblings: Iterable[Sibling]) -> None:
        """A verify node told who is in its fleet."""
        self.directory.learn(siblings)

    def address(self, number: int) -> Address:
        return self._known[number].address

    def next_to_try(self, wanted: Iterable[str | None], now: float) -> int | None:
        """Returns the number of a new link that is to be made now, if any is.

        One is made while the home is away, or while sessions wait whose targets (`wanted`) no link has. While the home
        is away it may be any: a session whose target nobody has is to find that out.
        """
        if now < self._try_at:
            return None
        targets = [one for one in dict.fromkeys(wanted) if not self._is_served(one)]
        if self.link.connected and not targets:
            return None
        self._try_at = now + TRY_S
        linked = {known.address.endpoint for known in self._known.values()}
        for target in targets if self.link.connected else [*targets, None]:
            for address in self.directory.candidates(target):
                if address.endpoint not in linked:
                    return self._make(address, now)
        return None

    def _is_served(self, target: str | None) -> bool:
        """Returns whether a link that is there has this target."""
        return any(self[number].connected and self._has(number, target) for number in self._known)

    def _has(self, number: int, target: str | None) -> bool:
        """Returns whether a link that is there has this target; its own Welcome says so, whatever was told of it."""
        welcome = self[number].welcome
        return target is None or (welcome is not None and welcome.target_fingerprint == target)

    def _make(self, address: Address, now: float) -> int:
        number, self._num_made = self._num_made, self._num_made + 1
        hello, timeout_s = self.link.hello, self.link.timeout_s
        self._known[number] = Known(VerifyLink.begin(hello, timeout_s, now), address, now, now + TRY_S)
        return number

    def useless(self, now: float) -> list[int]:
        """Returns the links to be given up: those of no use for IDLE_S, and the first of too many that are tried."""
        num_of = dict.fromkeys(self._known, 0)
        for number in self._on.values():
            if number in num_of:
                num_of[number] += 1
        spare = [one for one in self._known if one not in (self.home, self._home_to_be) and not num_of[one]]
        for number, known in self._known.items():
            if number not in spare:
                known.idle_since = now
        tried = [one for one in spare if not self[one].connected]
        gone = set(tried[: max(0, len(tried) - MAX_TRIED)])
        if self.link.connected:
            gone |= {one for one in spare if now - self._known[one].idle_since > IDLE_S}
        return sorted(gone)
