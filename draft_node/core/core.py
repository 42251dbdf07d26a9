"""The rules of a draft node as one state machine: events in, actions out, time as an argument.

Two shapes were compared. If `poll_actions()` drained a queue inside the core (h11, QUIC libraries), a driver that
forgets to poll would lose nothing, but no test could tell which event caused which action. Here every event returns
its own list, like the verify node's core does, and the driver keeps the order of the lines it sends.

    begin, forget                             a user asks for a text; the user left, or the text is over
    receive, tick                             a message of the verify node; time passes
    turned_away, broke, send_failed           what became of the connection
    too_large                                 a message of a session that the verify node would not take
    proposed                                  the draft model is done
    drain, leave                              this node stops: no text is begun any more; the last word is said

`draft_node/daemon.py` drives it with sockets and a model, `experiments/simulation/draft.py` on a virtual clock.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from draft_node.core.actions import (
    Action,
    Away,
    Connected,
    EndTexts,
    Fail,
    GiveUp,
    NodeAction,
    Propose,
    Proposed,
    Reconnect,
    Request,
    Send,
    Statistics,
    Tell,
    WriteLocally,
)
from draft_node.core.counts import Counts, total
from draft_node.core.drafts.ahead_rate import LEAST_RATE, AheadRate
from draft_node.core.drafts.ngrams import Ngrams
from draft_node.core.drafts.resting import Resting
from draft_node.core.line import Line
from draft_node.core.link import Command, VerifyLink
from draft_node.core.local import Terms
from draft_node.core.session import Session, State
from goodspeed.wire.messages import Admitted, DownMessage, Heartbeat, Leave, Refusal, Verdict


@dataclass(slots=True)
class DraftCore:
    """The link to the verify node, the sessions, and what becomes of them while it is away."""

    link: VerifyLink
    context_len: int  # of the draft model
    connect_timeout_s: float = 60.0  # an absence of the verify node that is longer is too long
    draft_ahead: bool = True
    stays: bool = False  # an absence that is too long ends the texts that wait, and not this node
    falls_back: bool = False  # an absence that is too long ends nothing: the draft model writes alone
    least_ahead_rate: float = LEAST_RATE
    ngrams: Ngrams | None = None  # None: no n-gram drafts
    has_model: bool = True  # without one, nothing is ever asked of a draft model
    is_local: bool = False  # the draft model writes alone now
    line: Line = field(default_factory=Line)  # who of the sessions has a place
    sessions: dict[bytes, Session] = field(default_factory=dict)
    resting: Resting = field(default_factory=Resting)  # of the draft model
    counts: Counts = field(default_factory=Counts)
    _last_word: Fail | None = None  # what every user is told from now on
    _has_left: bool = False  # nothing is sent any more

    @property
    def statistics(self) -> Statistics:
        """Over all sessions so far."""
        return total(self.counts.statistics, *(session.statistics for session in self.sessions.values()))

    # -- users -----------------------------------------------------------------------------------------------------

    def begin(self, request: Request, now: float) -> list[NodeAction]:
        """A user asks for a text. It waits for its place, and then for the verify node where that is away.

        The session is kept until `forget`, even when its user is told the last word at once.
        """
        rate = AheadRate(least=self.least_ahead_rate)
        ngrams = self.ngrams.begin(request) if self.ngrams is not None else None
        session = Session(request, self.draft_ahead, rate, ngrams, self.has_model, self.resting)
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
        closing = _of(session, session.cancel())
        return [] if self._has_left else closing + self._turn(now)

    def _turn(self, now: float) -> list[NodeAction]:
        """Sessions give up their places, and others get them. After the last word nobody does."""
        if self._last_word is not None:
            return []
        actions: list[NodeAction] = []
        enter, leave = self.line.turn(now, displaces=self.link.connected)
        for session in leave:
            actions += _of(session, session.give_way())
        for session in enter:
            actions += self._start(session, now)
        return actions

    def _start(self, session: Session, now: float) -> list[NodeAction]:
        """A session that has its place is opened as soon as the verify node is there, unless it is written alone."""
        if self.link.connected:
            return self._open(session, now)
        return self._fall_back(session, now) if self.is_local else []

    def _keep(self, session: Session) -> None:
        """Texts that are over may draft for others; those that the draft model wrote a part of are not the target's."""
        if self.ngrams is not None and not session.statistics.num_local:
            self.ngrams.keep(session.request, session.tokens)

    # -- the verify node -------------------------------------------------------------------------------------------

    def receive(self, message: DownMessage, now: float) -> list[NodeAction]:
        """A message of the verify node; PeerRefused for a refusal that no retry can mend."""
        if isinstance(message, Refusal):
            self.counts.refused(message.code)
        actions = self._obey(self.link.heard(message, now), now)
        if isinstance(message, Admitted | Verdict | Refusal) and message.session_id is not None:
            session = self.sessions.get(message.session_id)
            if session is not None:
                actions += _of(session, session.receive(message, now)) + self._placed(session, message, now)
        return actions

    def _placed(self, session: Session, message: Admitted | Verdict | Refusal, now: float) -> list[NodeAction]:
        """What this tells about room at the verify node, and whose turn it therefore is."""
        session_id = session.request.session_id
        if isinstance(message, Refusal) and session.state is State.POSTPONED:
            self.line.refused(session_id, now)
            return self._turn(now)
        if isinstance(message, Verdict) and message.epoch == session.epoch and self.line.moved(session_id, now):
            return self._turn(now)
        return []

    def tick(self, now: float) -> list[NodeAction]:
        """Time passes: notices silence, repeats what was not answered, and ends an absence that is too long."""
        actions = self._obey(self.link.tick(now), now)
        if self.link.away_s(now) > self.connect_timeout_s:
            actions += self._do_without(now)
        for session in self.sessions.values():
            if now >= session.resend_at:
                actions += _of(session, session.tick(now))
        return actions + self._turn(now)

    def turned_away(self, why: str, now: float) -> list[NodeAction]:
        """The verify node takes no connection of this node."""
        return self._obey(self.link.turned_away(why, now), now)

    def broke(self, now: float) -> list[NodeAction]:
        """The connection ended, and what was on it is lost."""
        return self._obey(self.link.broke(now), now)

    def send_failed(self, now: float) -> list[NodeAction]:
        """A message could not be sent. Does nothing while the verify node is away: that is known already."""
        if self._has_left or not self.link.connected:
            return []
        return self._obey(self.link.failed(now), now)

    def too_large(self, session_id: bytes, what: str) -> list[NodeAction]:
        """A message of this session is over the verify node's limit, so the text cannot go on."""
        session = self.sessions.get(session_id)
        if session is None:
            return []
        session.disconnect()
        return [Tell(session_id, Fail("too_large", what))]

    # -- the draft model -------------------------------------------------------------------------------------------

    def proposed(self, proposed: Proposed, now: float) -> list[NodeAction]:
        """The draft model is done, or has given up."""
        session = self.sessions.get(proposed.session_id)
        return _of(session, session.proposed(proposed, now)) if session is not None else []

    # -- the end ---------------------------------------------------------------------------------------------------

    def drain(self, fail: Fail) -> list[NodeAction]:
        """Closes what is running at both nodes; its users, and all that come later, are told why."""
        actions = self._tell_all(fail)
        self._last_word = fail
        if self._has_left:
            return actions
        for session in self.sessions.values():
            actions += _of(session, session.cancel())
        return actions

    def leave(self, fail: Fail) -> list[NodeAction]:
        """Says Leave, so that the verify node frees the sessions at once; and tells every user."""
        self._has_left, self._last_word = True, fail
        farewell: list[NodeAction] = [Send(Leave())] if self.link.connected else []
        return farewell + self._tell_all(fail)

    # -- what the link asks for ------------------------------------------------------------------------------------

    def _obey(self, commands: Iterable[Command], now: float) -> list[NodeAction]:
        actions: list[NodeAction] = []
        for command in commands:
            match command:
                case Command.SAY_HELLO:
                    actions.append(Send(self.link.hello))
                case Command.BEAT:
                    actions.append(Send(Heartbeat(self.link.hello.boot_id)))
                case Command.RECONNECT:
                    actions.append(Reconnect())
                case Command.OPEN_SESSIONS:
                    actions += self._open_all(now)
                case Command.DROP_SESSIONS:
                    actions.append(Away())
                    self.line.forget_rooms()
                    for session in self.sessions.values():
                        session.disconnect()
        return actions

    def _open_all(self, now: float) -> list[NodeAction]:
        """The verify node is there: every session that has a place is opened with what is committed so far."""
        welcome = self.link.welcome
        if welcome is None:
            return []
        actions: list[NodeAction] = [Connected(welcome, was_local=self.is_local)]
        self.is_local = False
        self.counts.num_connected += 1
        for session_id, session in self.sessions.items():
            if self.line.has_place(session_id):
                actions += self._open(session, now)
        return actions

    def _open(self, session: Session, now: float) -> list[NodeAction]:
        welcome = self.link.welcome
        if welcome is None:
            return []
        return _of(session, session.connect(now, welcome.target_fingerprint, welcome.context_len, welcome.capabilities))

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
        return _of(session, session.fall_back(terms, now))

    def _tell_all(self, fail: Fail) -> list[NodeAction]:
        return [Tell(session_id, fail) for session_id in self.sessions]


def _of(session: Session, actions: Iterable[Action]) -> list[NodeAction]:
    """A session's actions, with the name of the user whom some of them concern."""
    session_id = session.request.session_id
    return [action if isinstance(action, Send | Propose) else Tell(session_id, action) for action in actions]
