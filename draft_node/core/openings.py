"""Decides where sessions are opened: at which verify node, when it is there, and at which other when it is away.

`links.py` says where; this carries it out, as actions.
"""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from draft_node.core.actions import (
    Action,
    Away,
    Connect,
    Connected,
    Disconnect,
    NodeAction,
    Propose,
    Send,
    Tell,
)
from draft_node.core.counts import Counts
from draft_node.core.line import Line
from draft_node.core.links import Links
from draft_node.core.session import Session
from goodspeed.wire.fields import MAX_HOPS
from goodspeed.wire.handshake import Leave
from goodspeed.wire.messages import Redirect


class Openings:
    """Opens sessions on links."""

    def __init__(self, links: Links, sessions: Mapping[bytes, Session], line: Line, counts: Counts) -> None:
        """sessions: all of this node. line: says which of them have a place."""
        self._links = links
        self._sessions = sessions
        self._line = line
        self._counts = counts

    def look_around(self, now: float) -> list[NodeAction]:
        """Sessions whose verify node stays away go to another; links are made for that, and given up after it."""
        waiting = [one for one in self._sessions.values() if self._waits(one)]
        actions: list[NodeAction] = []
        for session in waiting:
            actions += self.open(session, now)
        made = self._links.next_to_try([one.target for one in waiting if self._waits(one)], now)
        if made is not None:
            actions.append(Connect(made, self._links.address(made)))
        for number in self._links.useless(now):
            farewell: list[NodeAction] = [Send(Leave(), number)] if self._links[number].connected else []
            self._links.drop(number)
            actions += [*farewell, Disconnect(number)]
        return actions

    def _waits(self, session: Session) -> bool:
        """Returns whether it has its place, and is open nowhere."""
        return not session.is_open and not session.done and self._line.has_place(session.request.session_id)

    def drop_all(self, link: int, now: float) -> list[NodeAction]:
        """A verify node is away: its sessions wait for it, or soon go elsewhere."""
        self._links.lost(link, now, in_good_order=self._links[link].says_goodbye)
        self._line.forget_rooms()
        for session_id in self._links.sessions_on(link):
            if (session := self._sessions.get(session_id)) is not None:
                session.disconnect()
        return [] if self._links.is_anybody_there else [Away()]

    def open_all(self, link: int, now: float, *, was_local: bool) -> list[NodeAction]:
        """A verify node is there: every session that waits and may go on there is opened with what is committed."""
        welcome = self._links[link].welcome
        if welcome is None:
            return []
        actions: list[NodeAction] = [Connected(welcome, was_local=was_local, link=link)]
        for same in self._links.welcomed(link, welcome):
            self._links.drop(same)
            actions.append(Disconnect(same))
        self._counts.num_connected += 1
        for session in self._sessions.values():
            if self._waits(session):
                actions += self.open(session, now)
        return actions

    def open(self, session: Session, now: float) -> list[NodeAction]:
        """Opens a session that is open nowhere, if there is a verify node for it now."""
        link = self._links.place(session.request.session_id, session.target, now)
        welcome = self._links[link].welcome if link is not None else None
        if welcome is None:
            return []
        opening = session.connect(
            now,
            welcome.target_fingerprint,
            welcome.context_len,
            constraints=welcome.constraints,
            promises=welcome.promises,
        )
        return self.of(session, opening)

    def redirect(self, session: Session, redirect: Redirect, now: float) -> list[NodeAction]:
        """The session goes on where it is sent, if that is known to be a verify node; else it is opened again later."""
        session_id, had_hops = session.request.session_id, session.num_hops
        if not session.redirected(redirect):
            return []
        self._counts.num_redirected += 1
        address = self._links.directory.find(redirect.endpoint, redirect.server_key)
        if address is None or had_hops >= MAX_HOPS:
            session.postpone()
            self._line.refused(session_id, now)
            return []
        made = self._links.send(session_id, address, now, moves_home=redirect.reason != "slo")
        connecting = [] if made is None else [Connect(made, address)]
        return [*connecting, *self.open(session, now)]

    def of(self, session: Session, actions: Iterable[Action]) -> list[NodeAction]:
        """A session's actions, with its link, or with the name of the user whom they concern."""
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
