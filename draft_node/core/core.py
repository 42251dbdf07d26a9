"""The draft node as one state machine: events in, actions out, time as an argument.

Two designs were compared. With `poll_actions()` draining a queue inside the core (h11, QUIC libraries), a driver that
forgets to poll loses nothing, but no test can tell which event caused which action. Here every event returns its own
list, as in the verify node's core, and the driver sends messages in that order.

    begin, forget                             a user requests a text; the text is over, or its user left
    receive, tick                             a message from a verify node; time passes
    turned_away, broke, send_failed           a link's connection was refused, ended, or could not send
    unreachable                               a new link's channel could not be created
    fail, too_large                           a text cannot go on: one of its events or messages failed
    proposed                                  the draft model finished a proposal
    drain, leave                              this node stops: it starts no new text; it sends Leave

Two drivers: `draft_node/process/daemon.py` with sockets and a model, `experiments/simulation/nodes/draft.py` on a
virtual clock.
"""

from collections.abc import Iterable, Sequence
from math import inf

from draft_node.core.actions import EndTexts, Fail, GiveUp, NodeAction, Reconnect, Send, Tell
from draft_node.core.counts import Counts, Statistics, total
from draft_node.core.drafts.ngrams import Ngrams
from draft_node.core.drafts.resting import Resting
from draft_node.core.generation import Generation
from draft_node.core.link import Command, VerifyLink
from draft_node.core.links import Links
from draft_node.core.request_queue import RequestQueue
from draft_node.core.session import LATER, Session, State
from draft_node.core.session_router import SessionRouter
from draft_node.core.verify_nodes import Address
from goodspeed.drafting.proposing import Proposed
from goodspeed.errors import PeerRefused
from goodspeed.serving.measuring.story import Story
from goodspeed.wire.handshake import Heartbeat, Leave
from goodspeed.wire.messages import DownMessage, Redirect, Refusal, Verdict


class DraftCore:
    """Owns the links to verify nodes and the sessions, and handles the absence of all verify nodes."""

    def __init__(
        self,
        link: VerifyLink,
        connect_timeout_s: float = 60.0,
        *,
        addresses: Sequence[Address] = (Address(""),),
        stays: bool = False,
        ngrams: Ngrams | None = None,
        num_parallel: int | None = 1,
        max_sessions: float = inf,
    ) -> None:
        """link: the link to the first of `addresses`. addresses: the verify nodes in the options.

        connect_timeout_s: longest tolerated absence of all verify nodes. After that the node stops; with `stays` only
        the waiting texts end. ngrams: None: no n-gram drafts. num_parallel: tokens that the draft model drafts in one
        forward pass; None: there is no draft model. max_sessions: texts with a place at once; the others wait.
        """
        self.links = Links(link, addresses)
        self.connect_timeout_s = connect_timeout_s
        self.stays = stays
        self.ngrams = ngrams
        self._num_parallel = num_parallel
        self.queue = RequestQueue(max_sessions)  # gives places to sessions
        self.sessions: dict[bytes, Session] = {}
        self.resting = Resting()  # pauses the draft model, for all sessions
        self.counts = Counts()
        self._story = Story()
        self.router = SessionRouter(self.links, self.sessions, self.queue, self.counts)
        self._last_word: Fail | None = None  # set when this node stops: the answer to every user from then on
        self._has_left = False  # Leave was said; nothing more is sent

    @property
    def link(self) -> VerifyLink:
        """The link on which new sessions are opened."""
        return self.links.link

    @property
    def statistics(self) -> Statistics:
        """Totals over all sessions since the start."""
        return total(self.counts.statistics, *(session.statistics for session in self.sessions.values()))

    # -- users -----------------------------------------------------------------------------------------------------

    def begin(self, request: Generation, now: float) -> list[NodeAction]:
        """Starts a session for a user's request. The session waits for a place, and then for a verify node.

        The session exists until `forget`, even if this node is stopping and its user gets a Fail at once.
        """
        ngrams = self.ngrams.begin(request) if self.ngrams is not None else None
        session = Session(request, ngrams, self.resting, self._num_parallel, story=self._story)
        self.sessions[request.session_id] = session
        if self._last_word is not None:
            return [Tell(request.session_id, self._last_word)]
        self.queue.add(session)
        return self._fill_places(now)

    def forget(self, session_id: bytes, now: float) -> list[NodeAction]:
        """Closes the session of a text that is over or whose user left. Its place goes to the next in the queue."""
        session = self.sessions.pop(session_id, None)
        if session is None:
            return []
        self.queue.remove(session_id)
        self.counts.statistics = total(self.counts.statistics, session.statistics)
        if self.ngrams is not None:
            self.ngrams.keep(session.request, session.tokens)
        closing = self.router.of(session, session.cancel())
        self.links.forget(session_id)
        self.resting.forget(session_id)
        return [] if self._has_left else closing + self._fill_places(now)

    def _fill_places(self, now: float) -> list[NodeAction]:
        """Gives free places to waiting sessions, unless this node is stopping."""
        if self._last_word is not None:
            return []
        actions: list[NodeAction] = []
        for session in self.queue.admit(now):
            actions += self.router.open(session, now)
        return actions

    # -- the verify node -------------------------------------------------------------------------------------------

    def receive(self, message: DownMessage, now: float, link: int = 0) -> list[NodeAction]:
        """Handles a verify node's message. Raises PeerRefused for a permanent refusal with no other node to try."""
        if link not in self.links:
            return []
        if isinstance(message, Refusal):
            self.counts.refused(message.code)
        actions = self._obey(link, self._heard(link, message, now), now)
        match message:
            case Heartbeat() if message.siblings is not None:
                self.links.verify_nodes.learn(message.siblings)
            case Redirect() if (session := self._session_on(link, message.session_id)) is not None:
                actions += self.router.redirect(session, message, now) + self._fill_places(now)
            case Verdict() | Refusal() if message.session_id is not None:
                session = self._session_on(link, message.session_id)
                if session is not None:
                    was_open = session.is_open
                    actions += self.router.of(session, session.receive(message, now))
                    actions += self._observe_room(session, message, now, was_open=was_open)
        return actions

    def _heard(self, link: int, message: DownMessage, now: float) -> list[Command]:
        try:
            return self.links[link].heard(message, now)
        except PeerRefused:
            if not self.links.exclude(link):
                raise
            return []

    def _session_on(self, link: int, session_id: bytes) -> Session | None:
        """Returns the session if it is on this link: a verify node may only address its own sessions."""
        return self.sessions.get(session_id) if self.links.on(session_id) == link else None

    def _observe_room(
        self, session: Session, message: Verdict | Refusal, now: float, *, was_open: bool
    ) -> list[NodeAction]:
        """Learns from an answer whether the verify node has room, and starts the sessions that get a place.

        was_open: before the answer.
        """
        session_id = session.request.session_id
        is_offline = was_open and session.state is State.OFFLINE
        if isinstance(message, Refusal) and message.code in LATER and is_offline:
            self.queue.refused(session_id, now, has_prompt_room=message.code != "too_many_prompt_logprobs")
            return self._fill_places(now)
        if isinstance(message, Verdict) and message.epoch == session.epoch and self.queue.answered(session_id, now):
            return self._fill_places(now)
        return []

    def tick(self, now: float) -> list[NodeAction]:
        """Detects silent links, retransmits unanswered messages, and handles an absence that is too long."""
        actions: list[NodeAction] = []
        for number in self.links:
            actions += self._obey(number, self.links[number].tick(now), now)
        actions += self.router.look_around(now)
        if self.away_s(now) > self.connect_timeout_s:
            actions += self._do_without(now)
        for session in self.sessions.values():
            if now >= session.resend_at:
                actions += self.router.of(session, session.tick(now))
        return actions + self._fill_places(now)

    def away_s(self, now: float) -> float:
        """Returns the seconds since the last verify node was lost; 0 while one is connected."""
        return 0.0 if self.links.is_anybody_there else self.link.away_s(now)

    def turned_away(self, why: str, now: float, link: int = 0) -> list[NodeAction]:
        """Handles a verify node that refuses this node's connection."""
        return self._obey(link, self.links[link].turned_away(why, now), now) if link in self.links else []

    def unreachable(self, link: int) -> None:
        """Drops a new link whose channel could not be created. Its sessions go elsewhere; it may be tried again."""
        if link in self.links and link != self.links.home:
            self.links.drop(link)

    def broke(self, now: float, link: int = 0) -> list[NodeAction]:
        """Handles a connection that ended; its messages in flight are lost."""
        return self._obey(link, self.links[link].broke(now), now) if link in self.links else []

    def send_failed(self, now: float, link: int = 0) -> list[NodeAction]:
        """Handles a failed send. Does nothing if that verify node is already known to be away."""
        return [] if self._has_left else self.broke(now, link)

    def fail(self, session_id: bytes, why: Fail) -> list[NodeAction]:
        """Fails a text after one of its events raised an exception; `forget` closes it at the verify node."""
        return [Tell(session_id, why)] if session_id in self.sessions else []

    def too_large(self, session_id: bytes, why: Fail) -> list[NodeAction]:
        """Fails a text after one of its messages exceeded the verify node's size limit; sends nothing more of it."""
        if session := self.sessions.get(session_id):
            session.disconnect()
        return self.fail(session_id, why)

    # -- the draft model -------------------------------------------------------------------------------------------

    def proposed(self, proposed: Proposed, now: float) -> list[NodeAction]:
        """Takes a proposal from the draft model; an empty one means that it failed."""
        session = self.sessions.get(proposed.session_id)
        return self.router.of(session, session.proposed(proposed)) if session is not None else []

    # -- the end ---------------------------------------------------------------------------------------------------

    def drain(self, fail: Fail) -> list[NodeAction]:
        """Closes the running sessions at both nodes; their users and all later ones get `fail`."""
        actions = self._tell_all(fail)
        self._last_word = fail
        if self._has_left:
            return actions
        for session in self.sessions.values():
            actions += self.router.of(session, session.cancel())
        return actions

    def leave(self, fail: Fail) -> list[NodeAction]:
        """Sends Leave, so that the verify nodes free the sessions at once, and `fail` to every user."""
        self._has_left, self._last_word = True, fail
        farewell: list[NodeAction] = [Send(Leave(), number) for number in self.links if self.links[number].connected]
        return farewell + self._tell_all(fail)

    # -- what a link asks for --------------------------------------------------------------------------------------

    def _obey(self, link: int, commands: Iterable[Command], now: float) -> list[NodeAction]:
        actions: list[NodeAction] = []
        for command in commands:
            match command:
                case Command.SAY_HELLO:
                    actions.append(Send(self.link.hello, link))
                case Command.BEAT:
                    actions.append(Send(Heartbeat(self.link.hello.boot_id), link))
                case Command.RECONNECT:
                    actions.append(Reconnect(link))
                case Command.OPEN_SESSIONS:
                    actions += self.router.open_all(link, now)
                case Command.DROP_SESSIONS:
                    actions += self.router.drop_all(link, now)
        return actions

    # -- an absence that is too long -------------------------------------------------------------------------------

    def _do_without(self, now: float) -> list[NodeAction]:
        if not self.stays:
            return [GiveUp()]
        ended: list[NodeAction] = [EndTexts(len(self.sessions))] if self.sessions else []
        return ended + self._tell_all(Fail("verify_away", f"{self.link.absence(now)}; ask again later"))

    def _tell_all(self, fail: Fail) -> list[NodeAction]:
        return [Tell(session_id, fail) for session_id in self.sessions]
