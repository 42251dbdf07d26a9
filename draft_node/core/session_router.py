"""Routes sessions to verify nodes: opens them, and moves them when a verify node is lost or redirects them.

`links.py` decides which link; this module turns the decision into actions.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from draft_node.core.actions import Action, Away, Connect, Connected, Disconnect, NodeAction, Reconnect, Send, Tell
from draft_node.core.counts import Counts
from draft_node.core.links import Links
from draft_node.core.request_queue import RequestQueue
from draft_node.core.session import Session
from goodspeed.drafting.proposing import Propose
from goodspeed.wire.fields import MAX_HOPS
from goodspeed.wire.handshake import Leave, Welcome
from goodspeed.wire.messages import Close, Redirect


class LeftOpen(NamedTuple):
    """Sessions that a lost verify node still has open, unless it has restarted."""

    boot_id: bytes  # another one means that it has restarted
    epochs: dict[bytes, int]  # by session


class SessionRouter:
    """Opens and moves sessions."""

    def __init__(self, links: Links, sessions: Mapping[bytes, Session], queue: RequestQueue, counts: Counts) -> None:
        """sessions: all sessions of this node. queue: decides which sessions have a place."""
        self._links = links
        self._sessions = sessions
        self._queue = queue
        self._counts = counts
        self._left_open: dict[int, LeftOpen] = {}  # by link: what its verify node had open when it was lost

    def look_around(self, now: float) -> list[NodeAction]:
        """Opens waiting sessions elsewhere if their verify node stays away; adds and closes links as needed."""
        waiting = [one for one in self._sessions.values() if self._waits(one, now)]
        actions: list[NodeAction] = []
        for session in waiting:
            actions += self.open(session, now)
        made = self._links.next_to_try([one.target for one in waiting if self._waits(one, now)], now)
        if made is not None:
            actions.append(Connect(made, self._links.address(made)))
        for number in self._links.useless(now):
            was_connected = self._links[number].connected
            self._links.drop(number)
            self._left_open.pop(number, None)
            # Reconnect drops the messages that nobody takes: closing would wait for them.
            actions += [Send(Leave(), number) if was_connected else Reconnect(number), Disconnect(number)]
        return actions

    def _waits(self, session: Session, now: float) -> bool:
        """Returns whether a session with a place may be opened now, and is not open at any verify node."""
        if session.is_open or session.done or now < session.opens_at:
            return False
        return self._queue.has_place(session.request.session_id)

    def drop_all(self, link: int, now: float) -> list[NodeAction]:
        """Handles a lost verify node: its sessions wait for it, and go elsewhere after a while."""
        lost = self._links[link]
        self._links.lost(link, now, in_good_order=lost.says_goodbye)
        self._queue.forget_rooms()
        here = [one for key, one in self._sessions.items() if self._links.on(key) == link]
        was_open = {one.request.session_id: one.epoch for one in here if one.is_open}
        if lost.welcome is not None and was_open:
            self._left_open[link] = LeftOpen(lost.welcome.boot_id, was_open)
        for session in here:
            session.disconnect()
        return [] if self._links.is_anybody_there else [Away()]

    def open_all(self, link: int, now: float) -> list[NodeAction]:
        """Handles a connected verify node: closes what it kept of ended or moved sessions, and opens waiting ones."""
        welcome = self._links[link].welcome
        if welcome is None:
            return []
        actions: list[NodeAction] = [Connected(welcome, link)]
        for same in self._links.welcomed(link, welcome):
            self._links.drop(same)
            actions.append(Disconnect(same))
        self._counts.num_connected += 1
        actions += self._close_left_open(link, welcome, now)
        for session in self._sessions.values():
            if self._waits(session, now):
                actions += self.open(session, now)
        return actions

    def _close_left_open(self, link: int, welcome: Welcome, now: float) -> list[NodeAction]:
        """Closes what the verify node kept, but for the sessions that are opened there now."""
        left_open = self._left_open.pop(link, None)
        if left_open is None or left_open.boot_id != welcome.boot_id:
            return []
        here = {key for key, one in self._sessions.items() if self._links.on(key) == link and self._waits(one, now)}
        return [Send(Close(key, epoch), link) for key, epoch in left_open.epochs.items() if key not in here]

    def open(self, session: Session, now: float) -> list[NodeAction]:
        """Opens a waiting session if a verify node can take it now."""
        link = self._links.place(session.request.session_id, session.target, now)
        welcome = self._links[link].welcome if link is not None else None
        if welcome is None:
            return []
        return self.of(session, session.connect(now, welcome))

    def redirect(self, session: Session, redirect: Redirect, now: float) -> list[NodeAction]:
        """Moves a session to the verify node that the redirect names; opens it later if that node is unknown."""
        session_id, had_hops = session.request.session_id, session.num_hops
        if not session.redirected(redirect):
            return []
        self._counts.num_redirected += 1
        address = self._links.verify_nodes.find(redirect.endpoint, redirect.server_key)
        if address is None or had_hops >= MAX_HOPS:
            self._queue.refused(session_id, now)
            return []
        made = self._links.send(session_id, address, now, moves_home=redirect.reason != "slo")
        connecting = [] if made is None else [Connect(made, address)]
        return [*connecting, *self.open(session, now)]

    def of(self, session: Session, actions: Iterable[Action]) -> list[NodeAction]:
        """Returns a session's actions as node actions: messages with the link, items for the user with the session."""
        session_id = session.request.session_id
        found: list[NodeAction] = []
        for action in actions:
            match action:
                case Send():
                    found.append(replace(action, link=self._links.on(session_id) or 0))
                case Propose():
                    found.append(action)
                case _:
                    found.append(Tell(session_id, action))
        return found
