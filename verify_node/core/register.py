"""A register of the peers that are connected, the open sessions, and the memory to be freed. No I/O, clock or torch.

Peers come with a Hello and go with a Leave, or when their lease runs out. Sessions come with an OpenSession and go with
a Close, with their peer, or when nobody mentions them any more. Where there are keys, a peer belongs to one, and goes
with it. What cannot be is answered by a `Rejection`.
"""

from collections.abc import Mapping
from itertools import chain, count

from msgspec.structs import replace

from goodspeed.constraint.compiling import Constraints
from goodspeed.engine.paged.pages import PagePool
from goodspeed.wire.enrolled import Enrolled
from goodspeed.wire.handshake import Hello, Welcome
from goodspeed.wire.messages import Ack, Close, Draft, OpenSession, UpMessage
from verify_node.core.diary import Diary
from verify_node.scheduler.allocate import Allocator
from verify_node.session.checks import (
    ANOTHERS_PEER,
    NOT_OPEN,
    Rejection,
    check_constraint,
    check_hello,
    check_open,
    check_principal,
    check_prompt_logprobs,
    check_session,
    check_text,
    num_prompt_logprobs,
)
from verify_node.session.client import Client, Peer
from verify_node.session.scopes import prefix_scope
from verify_node.session.session import Session
from verify_node.slo.deadline import Deadline
from verify_node.slo.terms import Tiers, granted

FORGOTTEN_S = 30.0
"""A session that its draft node has not mentioned for so long was given up there: its Close was lost. (Draft nodes
repeat themselves at least every 8 s; one that comes back later is told to reopen.)"""


STUCK_S = 300.0
"""A session that its draft node mentions but does not move for this long is dropped. Even a very bad line delivers one
message in that time: it is repeated every 8 s."""

MAX_CLIENTS = 4096
"""Client names remembered, since anybody may invent names; beyond that only present clients are kept."""

MAX_STEM = 56
"""Characters that are kept of a name that gets a number, so that it is still a name."""


class Register:
    """Peers and sessions by their ids."""

    def __init__(
        self,
        welcome: Welcome,
        allocator: Allocator,
        pool: PagePool,
        *,
        max_sessions: int,
        max_client_sessions: int,
        tiers: Tiers,
        constraints: Constraints | None = None,
    ) -> None:
        """constraints: of the constraints of sessions; None: sessions with one are refused."""
        self.welcome = welcome
        self.tiers = tiers
        self._constraints = constraints
        self.max_sessions = max_sessions
        self.max_client_sessions = max_client_sessions
        self.context_len = min(welcome.context_len, pool.num_pages * pool.page_size)
        self.enrolled: Mapping[str, Enrolled] | None = None  # by key; None: there are no keys
        self.peers: dict[bytes, Peer] = {}
        self.sessions: dict[bytes, Session] = {}
        self.diary = Diary()
        self._allocator = allocator
        self._pool = pool
        self._released: dict[bytes, bool] = {}  # sessions whose memory is freed; whether what is kept of it is of use
        self._num_opened = 0

    # -- peers -----------------------------------------------------------------------------------------------------

    def enrol(self, enrolled: Mapping[str, Enrolled], now: float) -> list[Peer]:
        """Replaces the enrolment. Ends and returns the peers whose key was removed or changed."""
        before, self.enrolled = self.enrolled or {}, enrolled
        ended = []
        for peer in self.peers.values():
            record = _record(enrolled, peer)
            if record is None or record != _record(before, peer):
                ended.append(peer)
        for peer in ended:
            self._remove(peer, now)
        return ended

    def check(self, peer_id: bytes, message: UpMessage, principal: str | None, now: float) -> Rejection | None:
        """The refusal of a message that its key does not allow; None if it is allowed."""
        if self.enrolled is None:
            return None
        peer = self.peers.get(peer_id)
        if principal in self.enrolled and peer is not None and peer.principal != principal:
            self._remove(peer, now)  # its connection is gone: nothing for it may go out by this name any more
            return ANOTHERS_PEER
        return check_principal(principal, self.enrolled, message)

    def hello(self, peer_id: bytes, hello: Hello, now: float, principal: str | None = None) -> Rejection | None:
        if refused := check_hello(hello, self.welcome):
            return refused
        name = self._client_name(peer_id, hello, principal)
        self._make_room(name)
        client = self._allocator.client(name)
        if all(peer.client is not client for peer in self.peers.values()):
            has_model = bool(hello.draft_model)
            self._allocator.set_draft_model(client, hello.draft_fingerprint, has_model=has_model)
        if principal is not None and self.enrolled is not None:
            client.grant(self.enrolled[principal])
        self._follow(peer_id, hello.boot_id, client, principal)
        old = self.peers.get(peer_id)
        if old is not None and not _is_same_draft_node(old, client, hello):
            self._drop_sessions_of(old)  # it knows nothing of them
            old = None
        if old is None:
            alike = f", one more that is called {hello.name}" if name != hello.name else ""
            self.diary.joined(name, hello.draft_model + alike, now)
        since = now if old is None else old.since
        self.peers[peer_id] = Peer(
            peer_id,
            hello.boot_id,
            client,
            hello.name,
            hello.draft_model,
            hello.draft_fingerprint,
            since,
            now,
            principal,
        )
        return None

    def _client_name(self, peer_id: bytes, hello: Hello, principal: str | None) -> str:
        """The name of a Hello's client: that of its key, or else one that no other process here has.

        Without keys, two draft nodes that call themselves alike would share one client's part, and its estimates.
        """
        if principal is not None:
            return hello.name
        for peer in self.peers.values():
            if (peer.boot_id, peer.name) == (hello.boot_id, hello.name):
                return peer.client.name  # it connects again, or says Hello again
        taken = {peer.client.name for peer in self.peers.values() if peer.peer_id != peer_id}
        names = (f"{hello.name[:MAX_STEM]}-{number}" for number in count(2))
        return next(name for name in chain((hello.name,), names) if name not in taken)

    def welcome_of(self, peer_id: bytes) -> Welcome:
        """What a peer is told, with the SLOs that it may ask for."""
        record = _record(self.enrolled or {}, self.peers[peer_id])
        return replace(self.welcome, slo=self.tiers.terms(record))

    def _make_room(self, name: str) -> None:
        """A client's estimates outlive its connections. Forgets absent clients once MAX_CLIENTS names are known."""
        clients = self._allocator.clients
        if name not in clients and len(clients) >= MAX_CLIENTS:
            there = {peer.client.name for peer in self.peers.values()}
            there |= {session.client.name for session in self.sessions.values()}
            for gone in clients.keys() - there:
                del clients[gone]

    def _follow(self, peer_id: bytes, boot_id: bytes, client: Client, principal: str | None) -> None:
        """Every connection has a name of its own: a process that connects again takes its sessions along.

        Another client that gives the same boot id, by chance or on purpose, gets nothing of them.
        """
        for old in list(self.peers.values()):
            is_same = old.client is client and (old.principal, old.boot_id) == (principal, boot_id)
            if is_same and old.peer_id != peer_id:
                self.peers[peer_id] = self.peers.pop(old.peer_id)
                for session in self.sessions.values():
                    if session.peer_id == old.peer_id:
                        session.move_to(peer_id)

    def expire(self, now: float) -> list[Session]:
        """Drops peers whose lease ran out, and forgotten and stuck sessions; returns the stuck ones."""
        for peer in [peer for peer in self.peers.values() if now - peer.last_seen > self.welcome.lease_s]:
            self._remove(peer, now)
        forgotten_s = max(FORGOTTEN_S, self.welcome.lease_s)
        for session in [session for session in self.sessions.values() if now - session.heard_at > forgotten_s]:
            self.drop(session)
        stuck = [
            session for session in self.sessions.values() if session.is_held_up and now - session.moved_at > STUCK_S
        ]
        for session in stuck:
            self.drop(session)
        return stuck

    def put_out(self, sender: bytes) -> list[bytes]:
        """Ends a sender's connections and sessions, with keys all those of its key; returns the ended peers' ids."""
        ended = [
            peer
            for peer in self.peers.values()
            if sender == (peer.principal.encode() if peer.principal else peer.peer_id)
        ]
        for peer in ended:
            del self.peers[peer.peer_id]
            self._drop_sessions_of(peer)
        return [peer.peer_id for peer in ended]

    def leave(self, peer: Peer, now: float) -> None:
        """The peer said Leave: it is removed, and its sessions are dropped at once."""
        del self.peers[peer.peer_id]
        self._drop_sessions_of(peer)
        self.diary.left(peer.client.name, peer.draft_model, now)

    def _remove(self, peer: Peer, now: float) -> None:
        del self.peers[peer.peer_id]
        self._drop_sessions_of(peer, may_return=True)
        self.diary.lost(peer.client.name, peer.draft_model, now)

    # -- sessions --------------------------------------------------------------------------------------------------

    def open(
        self, peer: Peer, message: OpenSession, now: float, *, num_rounds: int, in_flight: bool
    ) -> Session | Rejection:
        """The session, opened now (again), or as it is when this very message has opened it before; or why not."""
        known = self.sessions.get(message.session_id)
        num_own = sum(session.client is peer.client for session in self.sessions.values())
        num_allowed = self.max_client_sessions
        if peer.client.max_sessions is not None:
            num_allowed = min(num_allowed, peer.client.max_sessions)
        num_free = min(self.max_sessions - len(self.sessions), num_allowed - num_own)
        refused = (
            check_open(message, peer.client, known, num_free)
            or check_text(message, self.welcome, self.context_len)
            or check_prompt_logprobs(message, self._num_prompt_logprobs(peer.client, known))
        )
        if refused := refused or check_constraint(message, self._constraints):
            return refused
        if known is not None and known.epoch == message.epoch:
            known.heard(peer.peer_id, now)
            return known
        if not any(other.client is peer.client and not other.finished for other in self.sessions.values()):
            peer.client.become_active(num_rounds)
        session = self._new_session(peer, message, now, known)
        if known is not None:
            self._replace(known, session, in_flight)
        self.sessions[message.session_id] = session
        self._hold_form(message)
        if not in_flight:
            self._release_forms(message.session_id)
        return session

    def find(self, peer: Peer, message: Draft | Ack, now: float) -> Session | Rejection:
        """The session that a message is about, or why not."""
        session = self.sessions.get(message.session_id)
        if session is None:
            return NOT_OPEN
        if refused := check_session(session, peer.client, message.epoch):
            return refused
        session.heard(peer.peer_id, now)
        return session

    def close(self, peer: Peer, message: Close) -> Rejection | None:
        session = self.sessions.get(message.session_id)
        if session is None:
            return None
        if refused := check_session(session, peer.client, min(message.epoch, session.epoch)):
            return refused
        self.drop(session)
        return None

    def drop(self, session: Session, *, may_return: bool = False) -> None:
        """Closes the session; its memory is freed when no round is in flight.

        What it read is kept for those that it shares with, and for itself where it may be opened again.
        """
        del self.sessions[session.session_id]
        self._released[session.session_id] = session.shares or may_return

    @property
    def released(self) -> frozenset[bytes]:
        """Sessions whose memory is freed when no round is in flight; one of the same id may be open again."""
        return frozenset(self._released)

    def has(self, session: Session) -> bool:
        """Whether this one is open, and not another that was opened by the same id."""
        return self.sessions.get(session.session_id) is session

    def free_released(self) -> None:
        """Frees the memory of closed sessions; to be called only while no round is in flight."""
        for session_id, is_kept in self._released.items():
            if not is_kept:
                self._pool.withdraw(session_id)
            self._pool.free(session_id)
            self._release_forms(session_id)
        self._released.clear()

    def _num_prompt_logprobs(self, client: Client, known: Session | None) -> int:
        """What is kept for a client's sessions other than `known` until it has it."""
        return sum(
            num_prompt_logprobs(session.opened)
            for session in self.sessions.values()
            if session.client is client and session is not known and session.prompt_logprobs is not None
        )

    def _new_session(self, peer: Peer, message: OpenSession, now: float, known: Session | None) -> Session:
        """known: what has been open by its id until now."""
        tokens = [*message.prompt, *message.committed]
        self._num_opened += 1
        return Session(
            opened=message,
            peer_id=peer.peer_id,
            client=peer.client,
            acceptance=self._allocator.session_acceptance(peer.client),
            acceptance_bound=peer.client.acceptance_bound.begin(),
            round_trip_s=peer.client.round_trip_s,
            tokens=tokens,
            admitted=self._num_opened,
            acked=len(tokens),
            limit=min(len(message.prompt) + message.max_tokens, self.context_len),
            ready_since=now,
            heard_at=now,
            moved_at=now,
            prompt_logprobs=[] if message.num_prompt_logprobs is not None else None,
            deadline=self._deadline(peer, message, now, known.deadline if known is not None else None),
            prefix_scope=prefix_scope(peer, message),
        )

    def _deadline(self, peer: Peer, message: OpenSession, now: float, old: Deadline | None) -> Deadline | None:
        """What the session is to keep, as far as its key may ask for it; None where it asks for nothing."""
        asked, client = message.slo, peer.client
        if asked is None or asked.objectives.is_empty:
            return None
        slo = granted(asked.objectives, self.tiers.terms(_record(self.enrolled or {}, peer)))
        num_tokens, trip_s = len(message.committed), client.round_trip_s
        return Deadline.open(message.session_id, client.name, asked, slo, num_tokens, trip_s, now, old)

    def _replace(self, old: Session, new: Session, in_flight: bool) -> None:
        """A session opened again keeps its place, what was learned about it, and the memory that is still right."""
        new.continue_from(old)
        if in_flight or old.session_id in self._released:
            self._released.setdefault(old.session_id, True)
            return
        cached = self._pool.length(old.session_id)
        right = min(cached, _common_prefix(old.tokens, new.tokens), new.num_readable)
        if self._pool.truncate(new.session_id, right) == 0:
            self._pool.free(new.session_id)  # so that it may begin with kept pages

    def has_form(self, session: Session) -> bool:
        """Whether the session holds the form that it is to keep, if it has one."""
        constraint = session.opened.constraint
        return (
            constraint is None or self._constraints is None or self._constraints.holds(session.session_id, constraint)
        )

    def lost_forms(self) -> list[bytes]:
        """Session ids for which forms are held that nothing will let go: there is no session that has any."""
        holders = self._constraints.holders if self._constraints is not None else []
        having = {session.session_id for session in self.sessions.values() if session.opened.constraint is not None}
        return [holder for holder in holders if holder not in having and holder not in self._released]

    def _hold_form(self, message: OpenSession) -> None:
        """Keeps the form compiled for the target, which must not have to do that in the middle of a round."""
        if self._constraints is not None and message.constraint is not None:
            self._constraints.hold(message.session_id, message.constraint)

    def _release_forms(self, session_id: bytes) -> None:
        """Lets go of what was held by this id, but for what is open by it; only while no round is in flight."""
        if self._constraints is not None:
            session = self.sessions.get(session_id)
            self._constraints.release(session_id, but=None if session is None else session.opened.constraint)

    def _drop_sessions_of(self, peer: Peer, *, may_return: bool = False) -> None:
        for session in [session for session in self.sessions.values() if session.peer_id == peer.peer_id]:
            self.drop(session, may_return=may_return)


def _is_same_draft_node(peer: Peer, client: Client, hello: Hello) -> bool:
    """Whether a Hello comes from the peer's own process, under the same client name and draft model."""
    known = (peer.boot_id, peer.draft_fingerprint)
    return peer.client is client and known == (hello.boot_id, hello.draft_fingerprint)


def _record(enrolled: Mapping[str, Enrolled], peer: Peer) -> Enrolled | None:
    return enrolled.get(peer.principal) if peer.principal is not None else None


def _common_prefix(left: list[int], right: list[int]) -> int:
    shorter = min(len(left), len(right))
    if left[:shorter] == right[:shorter]:
        return shorter
    return next(index for index in range(shorter) if left[index] != right[index])
