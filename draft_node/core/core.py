"""The rules of a draft node as one state machine: events in, actions out, time as an argument.

Two shapes were compared. If `poll_actions()` drained a queue inside the core (h11, QUIC libraries), a driver that
forgets to poll would lose nothing, but no test could tell which event caused which action. Here every event returns
its own list, like the verify node's core does, and the driver keeps the order of the lines it sends.

    begin, forget                             a user asks for a text; the user left, or the text is over
    receive, tick                             a message of a verify node; time passes
    turned_away, broke, send_failed           what became of a link's connection
    fail                                      a text cannot go on, by what became of one of its messages
    proposed                                  the draft model is done
    drain, leave                              this node stops: no text is begun any more; the last word is said

`draft_node/daemon.py` drives it with sockets and a model, `experiments/simulation/nodes/draft.py` on a virtual clock.
"""

from collections.abc import Iterable, Sequence

from draft_node.core.actions import (
    EndTexts,
    Fail,
    GiveUp,
    NodeAction,
    Proposed,
    Reconnect,
    Request,
    Send,
    Statistics,
    Tell,
    WriteLocally,
)
from draft_node.core.counts import Counts, total
from draft_node.core.directory import Address
from draft_node.core.drafts.ngrams import Ngrams
from draft_node.core.drafts.resting import Resting
from draft_node.core.line import Line
from draft_node.core.link import Command, VerifyLink
from draft_node.core.links import Links
from draft_node.core.local import Terms
from draft_node.core.openings import Openings
from draft_node.core.session import Session, State
from goodspeed.errors import PeerRefused
from goodspeed.ngram.history import History
from goodspeed.wire.handshake import Heartbeat, Leave
from goodspeed.wire.messages import DownMessage, Redirect, Refusal, Verdict


class DraftCore:
    """The links to verify nodes, the sessions, and what becomes of them while all are away."""

    def __init__(
        self,
        link: VerifyLink,
        context_len: int,
        connect_timeout_s: float = 60.0,
        *,
        addresses: Sequence[Address] = (Address(""),),
        stays: bool = False,
        falls_back: bool = False,
        ngrams: Ngrams | None = None,
        has_model: bool = True,
        line: Line | None = None,
    ) -> None:
        """link: to the first of `addresses`, the verify nodes of the options.

        context_len: of the draft model. connect_timeout_s: an absence of all verify nodes that is longer is too long;
        then `stays` has it end the texts that wait, and not this node, and `falls_back` has it end nothing: the draft
        model writes alone. ngrams: None for no n-gram drafts. has_model: without one, nothing is ever asked of it.
        """
        self.links = Links(link, addresses)
        self.context_len = context_len
        self.connect_timeout_s = connect_timeout_s
        self.stays = stays
        self.falls_back = falls_back
        self.ngrams = ngrams
        self._predictions = Ngrams(History(1, per_user=True), keeps=False)  # drafts from nothing else
        self.has_model = has_model
        self.is_local = False  # the draft model writes alone now
        self.line = line if line is not None else Line()  # who of the sessions has a place
        self.sessions: dict[bytes, Session] = {}
        self.resting = Resting()  # of the draft model
        self.counts = Counts()
        self.openings = Openings(self.links, self.sessions, self.line, self.counts)
        self._last_word: Fail | None = None  # what every user is told from now on
        self._has_left = False  # nothing is sent any more

    @property
    def link(self) -> VerifyLink:
        """The link on which new sessions are opened."""
        return self.links.link

    @property
    def statistics(self) -> Statistics:
        """Over all sessions so far."""
        return total(self.counts.statistics, *(session.statistics for session in self.sessions.values()))

    # -- users -----------------------------------------------------------------------------------------------------

    def begin(self, request: Request, now: float) -> list[NodeAction]:
        """A user asks for a text. It waits for its place, and then for the verify node where that is away.

        The session is kept until `forget`, even when its user is told the last word at once.
        """
        known = self.ngrams if self.ngrams is not None or not request.prediction else self._predictions
        ngrams = known.begin(request) if known is not None else None
        session = Session(request, ngrams, self.has_model, self.resting)
        self.sessions[request.session_id] = session
        if self._last_word is not None:
            return [Tell(request.session_id, self._last_word)]
        self.line.join(session, now)
        return self._turn(now)

    def forget(self, session_id: bytes, now: float) -> list[NodeAction]:
        """The text is over or its user left: its session is closed, and the next one's turn comes."""
        session = self.sessions.pop(session_id, None)
        if session is None:
            return []
        self.line.leave(session_id)
        self.counts.statistics = total(self.counts.statistics, session.statistics)
        self._keep(session)
        closing = self.openings.of(session, session.cancel())
        self.links.forget(session_id)
        return [] if self._has_left else closing + self._turn(now)

    def _turn(self, now: float) -> list[NodeAction]:
        """Sessions get the free places. After the last word none does."""
        if self._last_word is not None:
            return []
        actions: list[NodeAction] = []
        for session in self.line.turn(now):
            actions += self._start(session, now)
        return actions

    def _start(self, session: Session, now: float) -> list[NodeAction]:
        """A session that has its place is opened as soon as a verify node is there, unless it is written alone."""
        opened = self.openings.open(session, now)
        return opened or (self._fall_back(session, now) if self.is_local else [])

    def _keep(self, session: Session) -> None:
        """Texts that are over may draft for others; those that the draft model wrote a part of are not the target's."""
        if self.ngrams is not None and not session.statistics.num_local:
            self.ngrams.keep(session.request, session.tokens)

    # -- the verify node -------------------------------------------------------------------------------------------

    def receive(self, message: DownMessage, now: float, link: int = 0) -> list[NodeAction]:
        """A message of a verify node; PeerRefused for a refusal that no retry can mend, and nobody else to go to."""
        if link not in self.links:
            return []
        if isinstance(message, Refusal):
            self.counts.refused(message.code)
        actions = self._obey(link, self._heard(link, message, now), now)
        match message:
            case Heartbeat() if message.siblings is not None:
                self.links.learn(message.siblings)
            case Redirect() if (session := self._session_on(link, message.session_id)) is not None:
                actions += self.openings.redirect(session, message, now) + self._turn(now)
            case Verdict() | Refusal() if message.session_id is not None:
                session = self._session_on(link, message.session_id)
                if session is not None:
                    actions += self.openings.of(session, session.receive(message, now)) + self._placed(
                        session, message, now
                    )
        return actions

    def _heard(self, link: int, message: DownMessage, now: float) -> list[Command]:
        try:
            return self.links[link].heard(message, now)
        except PeerRefused:
            if not self.links.exclude(link):
                raise
            return []

    def _session_on(self, link: int, session_id: bytes) -> Session | None:
        """A session that this link's verify node may speak of."""
        return self.sessions.get(session_id) if self.links.on(session_id) == link else None

    def _placed(self, session: Session, message: Verdict | Refusal, now: float) -> list[NodeAction]:
        """Learns from this about room at the verify node, and returns whose turn it is."""
        session_id = session.request.session_id
        if isinstance(message, Refusal) and session.state is State.POSTPONED:
            self.line.refused(session_id, now)
            return self._turn(now)
        if isinstance(message, Verdict) and message.epoch == session.epoch and self.line.moved(session_id, now):
            return self._turn(now)
        return []

    def tick(self, now: float) -> list[NodeAction]:
        """Time passes: notices silence, repeats what was not answered, and ends an absence that is too long."""
        actions: list[NodeAction] = []
        for number in self.links:
            actions += self._obey(number, self.links[number].tick(now), now)
        actions += self.openings.look_around(now)
        if self.away_s(now) > self.connect_timeout_s:
            actions += self._do_without(now)
        for session in self.sessions.values():
            if now >= session.resend_at:
                actions += self.openings.of(session, session.tick(now))
        return actions + self._turn(now)

    def away_s(self, now: float) -> float:
        """Returns for how long no verify node has been there; 0 while one is."""
        return 0.0 if self.links.is_anybody_there else self.link.away_s(now)

    def turned_away(self, why: str, now: float, link: int = 0) -> list[NodeAction]:
        """A verify node takes no connection of this node."""
        return self._obey(link, self.links[link].turned_away(why, now), now) if link in self.links else []

    def unreachable(self, link: int) -> None:
        """No channel can be made for a new link: its sessions go elsewhere, and it may be tried again."""
        if link in self.links and link != self.links.home:
            self.links.drop(link)

    def broke(self, now: float, link: int = 0) -> list[NodeAction]:
        """A connection ended, and what was on it is lost."""
        return self._obey(link, self.links[link].broke(now), now) if link in self.links else []

    def send_failed(self, now: float, link: int = 0) -> list[NodeAction]:
        """A message could not be sent. Does nothing while that verify node is away: that is known already."""
        if self._has_left or link not in self.links or not self.links[link].connected:
            return []
        return self._obey(link, self.links[link].failed(now), now)

    def fail(self, session_id: bytes, why: Fail) -> list[NodeAction]:
        """This text cannot go on, since an event of it raised; `forget` closes it at the verify node."""
        return [Tell(session_id, why)] if session_id in self.sessions else []

    def too_large(self, session_id: bytes, why: Fail) -> list[NodeAction]:
        """This text cannot go on, since a message of it is over the verify node's limit; nothing more of it is sent."""
        if session := self.sessions.get(session_id):
            session.disconnect()
        return self.fail(session_id, why)

    # -- the draft model -------------------------------------------------------------------------------------------

    def proposed(self, proposed: Proposed, now: float) -> list[NodeAction]:
        """The draft model is done, or has given up."""
        session = self.sessions.get(proposed.session_id)
        return self.openings.of(session, session.proposed(proposed, now)) if session is not None else []

    # -- the end ---------------------------------------------------------------------------------------------------

    def drain(self, fail: Fail) -> list[NodeAction]:
        """Closes what is running at both nodes; its users, and all that come later, are told why."""
        actions = self._tell_all(fail)
        self._last_word = fail
        if self._has_left:
            return actions
        for session in self.sessions.values():
            actions += self.openings.of(session, session.cancel())
        return actions

    def leave(self, fail: Fail) -> list[NodeAction]:
        """Says Leave, so that the verify nodes free the sessions at once; and tells every user."""
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
                    actions += self.openings.open_all(link, now, was_local=self.is_local)
                    self.is_local = False
                case Command.DROP_SESSIONS:
                    actions += self.openings.drop_all(link, now)
        return actions

    # -- an absence that is too long -------------------------------------------------------------------------------

    def _do_without(self, now: float) -> list[NodeAction]:
        if self.falls_back and self.has_model:
            return self._write_locally(now)
        if not self.stays:
            return [GiveUp()]
        ended: list[NodeAction] = [EndTexts(len(self.sessions))] if self.sessions else []
        return ended + self._tell_all(Fail("verify_away", f"{self.link.absence(now)}; ask again later"))

    def _write_locally(self, now: float) -> list[NodeAction]:
        """The draft model goes on alone with every text that waits for the verify node."""
        actions: list[NodeAction] = [] if self.is_local else [WriteLocally()]
        self.is_local = True
        for session_id, session in self.sessions.items():
            if self.line.has_place(session_id):
                actions += self._fall_back(session, now)
        return actions

    def _fall_back(self, session: Session, now: float) -> list[NodeAction]:
        welcome = self.link.welcome
        terms = Terms(self.link.absence(now), self.context_len, welcome.context_len if welcome is not None else None)
        return self.openings.of(session, session.fall_back(terms, now))

    def _tell_all(self, fail: Fail) -> list[NodeAction]:
        return [Tell(session_id, fail) for session_id in self.sessions]
