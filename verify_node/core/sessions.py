"""The open sessions by id, and the KV pages of closed sessions that are still to be freed. No I/O, clock or torch.

A session is opened by an OpenSession. It ends with a Close, with its peer, or when its draft node no longer mentions
it. Invalid requests are answered by a `Refusal`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, ValuesView

from goodspeed.constraint.compiling import Compiled, Constraints
from goodspeed.engine.paged.pages import PagePool
from goodspeed.errors import ConstraintError, ProcessError
from goodspeed.serving.measuring.story import Story
from goodspeed.wire.generation import Constraint
from goodspeed.wire.handshake import SloTerms, Welcome
from goodspeed.wire.messages import Ack, Close, Draft, OpenSession, Refusal
from verify_node.clients.client import Client, Peer
from verify_node.core.refusals import (
    NOT_OPEN,
    check_constraint,
    check_open,
    check_prompt_logprobs,
    check_session,
    check_text,
    compiler_failed,
    does_not_compile,
    num_prompt_logprobs,
)
from verify_node.core.settings import CoreSettings
from verify_node.scheduler.allocate import Allocator
from verify_node.session.deadline import Deadline
from verify_node.session.phase import Phase
from verify_node.session.session import Session, prefix_scope
from verify_node.slo.terms import granted

FORGOTTEN_S = 30.0
"""Seconds without a message about a session after which the session is dropped: its draft node gave it up, and the
Close was lost. Draft nodes repeat messages at least every 8 s; a draft node that returns later has to reopen the
session."""

STUCK_S = 300.0
"""Seconds without progress after which a session is dropped although its draft node sends messages about it. Even a
very bad connection delivers one message in that time, because messages are repeated every 8 s."""


class Sessions(Mapping[bytes, Session]):
    """A register's open sessions, a live view; its methods open and close them."""

    def __init__(
        self,
        settings: CoreSettings,
        allocator: Allocator,
        pool: PagePool,
        constraints: Constraints | None,
        *,
        welcome: Callable[[], Welcome],
        slo_terms: Callable[[Peer], SloTerms],
    ) -> None:
        """constraints: compiles and holds sessions' constraints; None: sessions with a constraint are refused.

        welcome: has the longest context. slo_terms: of the objectives that a peer may request.
        """
        self.constraints = constraints
        self.max_sessions = settings.max_sessions
        self.max_client_sessions = settings.max_client_sessions
        self._allocator = allocator
        self._pool = pool
        self._welcome, self._slo_terms = welcome, slo_terms
        self._open: dict[bytes, Session] = {}
        self._released: dict[bytes, tuple[bytes, Sequence[int]] | None] = {}
        """Ids of closed sessions whose pages are to be freed; with scope and text if none of that stays cached."""
        self._num_opened = 0
        self.story = Story()

    def __getitem__(self, session_id: bytes) -> Session:
        return self._open[session_id]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._open)

    def __len__(self) -> int:
        return len(self._open)

    def values(self) -> ValuesView[Session]:
        """Returns the sessions as the dictionary does, which is quicker than a mapping's view."""
        return self._open.values()

    def open(
        self, peer: Peer, message: OpenSession, now: float, *, num_rounds: int, in_flight: bool
    ) -> Session | Refusal:
        """Opens or reopens a session; if this very message has opened it before, returns it unchanged."""
        known = self._open.get(message.session_id)
        refused = (
            check_open(message, peer.client, known, self._num_free(peer.client))
            or check_text(message, self._welcome())
            or check_prompt_logprobs(message, self._num_prompt_logprobs(peer.client, known))
            or check_constraint(message, self.constraints)
        )
        if refused:
            return refused
        if known is not None and known.epoch == message.epoch:
            known.heard(peer.peer_id, now)
            return known
        compiles = message.constraint is not None and not self._holds(message.session_id, message.constraint)
        if not compiles:
            self._mark_active(peer.client, num_rounds)
        self._num_opened += 1
        session = Session(
            message,
            peer.peer_id,
            peer.client,
            self._allocator.session_acceptance(peer.client),
            admitted=self._num_opened,
            limit=min(len(message.prompt) + message.max_tokens, self._welcome().context_len),
            arrived_at=now,
            phase=Phase.COMPILING if compiles else Phase.OPENED,
            deadline=self._deadline(peer, message, now, known.deadline if known is not None else None),
            prefix_scope=prefix_scope(peer, message),
            story=self.story,
        )
        self.story.note(message.session_id, "open", message.epoch, session.phase, now)
        if known is not None:
            self._replace(known, session, in_flight)
        self._open[message.session_id] = session
        if not in_flight:
            self._release_constraints(message.session_id)
        return session

    def next_to_compile(self) -> Session | None:
        """Returns the session whose constraint is to be compiled next. Clients take turns, each with its oldest one."""
        return min((one for one in self._open.values() if one.is_compiling), key=_turn, default=None)

    def compiled(self, asked: Session, result: Compiled, now: float, *, num_rounds: int) -> Session | Refusal | None:
        """Lets the session of `next_to_compile` begin, also if it was reopened meanwhile; None if it waits no more."""
        asked.client.take_turn(now)
        session, constraint = self._open.get(asked.session_id), asked.opened.constraint
        if session is None or session.client is not asked.client or session.opened.constraint != constraint:
            return None
        if self.constraints is None or not session.is_compiling:
            return None
        if isinstance(result, ConstraintError):
            return does_not_compile(str(result))
        if isinstance(result, ProcessError):
            return compiler_failed(str(result))
        self.constraints.hold(session.session_id, result)  # so that no round has to compile it
        self._mark_active(session.client, num_rounds)
        session.begin(now)
        return session

    def _mark_active(self, client: Client, num_rounds: int) -> None:
        """Marks the client active, before one of its sessions begins, unless another one has."""
        if not any(other.client is client and other.is_active for other in self._open.values()):
            client.become_active(num_rounds)

    def _num_free(self, client: Client) -> int:
        """Number of further sessions that the client may open."""
        num_allowed = self.max_client_sessions
        if client.max_sessions is not None:
            num_allowed = min(num_allowed, client.max_sessions)
        num_own = sum(session.client is client for session in self._open.values())
        return min(self.max_sessions - len(self._open), num_allowed - num_own)

    def find(self, peer: Peer, message: Draft | Ack, now: float) -> Session | Refusal:
        """Returns the session that a message refers to, or the reason for refusing the message."""
        session = self._open.get(message.session_id)
        if session is None:
            return NOT_OPEN
        if refused := check_session(session, peer.client, message.epoch):
            return refused
        session.heard(peer.peer_id, now)
        return session

    def close(self, peer: Peer, message: Close) -> Refusal | None:
        session = self._open.get(message.session_id)
        if session is None:
            return None
        if refused := check_session(session, peer.client, min(message.epoch, session.epoch)):
            return refused
        self.drop(session)
        return None

    def drop(self, session: Session, *, may_return: bool = False) -> None:
        """Closes the session; frees its pages when no round is in flight.

        Its pages stay cached for sessions that share them, and for itself if it may be reopened.
        """
        del self._open[session.session_id]
        self.story.note(session.session_id, "drop", len(session.tokens), session.phase)
        is_kept = session.shares or may_return
        self._released[session.session_id] = None if is_kept else (session.prefix_scope, session.tokens)

    def expire(self, now: float, round_s: float) -> list[Session]:
        """Drops forgotten and stuck sessions; returns the stuck ones. round_s: duration of a round."""
        forgotten_s = max(FORGOTTEN_S, self._welcome().lease_s)
        for session in [session for session in self._open.values() if now - session.heard_at > forgotten_s]:
            self.drop(session)
        late = [one for one in self._open.values() if now - one.moved_at > STUCK_S]
        stuck = [one for one in late if not one.can_move(round_s) and not one.is_compiling]
        for session in stuck:
            self.drop(session)
        return stuck

    def drop_all_of(self, peers: Iterable[Peer], *, may_return: bool = False) -> None:
        gone = {peer.peer_id for peer in peers}
        for session in [session for session in self._open.values() if session.peer_id in gone]:
            self.drop(session, may_return=may_return)

    @property
    def released(self) -> frozenset[bytes]:
        """Sessions whose pages will be freed when no round is in flight; the same id may be open again."""
        return frozenset(self._released)

    def has(self, session: Session) -> bool:
        """True if this session itself is open, not another one of the same id."""
        return self._open.get(session.session_id) is session

    def free_released(self) -> None:
        """Frees the pages of closed sessions; to be called only while no round is in flight."""
        for session_id, forgotten in self._released.items():
            if forgotten is not None:
                self._pool.forget(session_id, *forgotten)
            self._pool.free(session_id)
            self._release_constraints(session_id)
        self._released.clear()

    def _num_prompt_logprobs(self, client: Client, known: Session | None) -> int:
        """Number of prompt logprobs that the client's sessions, except `known`, wait for."""
        return sum(
            num_prompt_logprobs(session.opened)
            for session in self._open.values()
            if session.client is client and session is not known and session.prompt_logprobs is not None
        )

    def _deadline(self, peer: Peer, message: OpenSession, now: float, old: Deadline | None) -> Deadline | None:
        """Returns the session's objectives, within its key's limits; None if it requests none."""
        asked, client = message.slo, peer.client
        if asked is None or asked.objectives.is_empty:
            return None
        slo = granted(asked.objectives, self._slo_terms(peer)).whole()
        num_tokens, trip_s = len(message.committed), client.round_trip_s
        return Deadline.open(message.session_id, client.name, asked, slo, num_tokens, trip_s, now, old)

    def _replace(self, old: Session, new: Session, in_flight: bool) -> None:
        """Passes a reopened session its predecessor's age, estimates, and if it keeps its place the valid pages."""
        new.continue_from(old)
        if in_flight or old.session_id in self._released:
            self._released.setdefault(old.session_id, None)
            return
        right = min(self._pool.length(old.session_id), new.most_cached) if new.goes_on(old) else 0
        if self._pool.truncate(new.session_id, right) == 0:
            self._pool.free(new.session_id)  # so that it may start from cached pages

    def _holds(self, session_id: bytes, constraint: Constraint) -> bool:
        return self.constraints is not None and self.constraints.holds(session_id, constraint)

    def _release_constraints(self, session_id: bytes) -> None:
        """Releases constraints held by this id, except the open session's; only while no round is in flight."""
        if self.constraints is not None:
            session = self._open.get(session_id)
            self.constraints.release(session_id, but=None if session is None else session.opened.constraint)


def _turn(session: Session) -> tuple[float, int]:
    """Orders sessions whose constraints wait, like a queue that a client leaves with each turn and enters again."""
    return max(session.client.compiled_at, session.arrived_at), session.admitted
