"""Sessions, rounds and verdicts as a state machine: events in, messages out. No I/O, no clock of its own, no torch.

Events: `receive` (a peer's message), `reject` (a peer's unacceptable bytes), `tick` (time passes), `plan` (may a round
start?) and `finish` (a round is done). Each is given the time and gives back what to send. The daemon feeds it from
sockets and the real clock; a simulation may feed the same class from a virtual one.

Between `plan` and `finish` a round is in flight: the target reads and writes key/value memory, so the pool is changed
only when none is.
"""

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from goodspeed.codec import refusal_for
from goodspeed.engine.pages import PagePool
from goodspeed.errors import ConfigError, ProtocolError
from goodspeed.latency import Refined
from goodspeed.messages import (
    Ack,
    Close,
    DownMessage,
    Draft,
    Heartbeat,
    Hello,
    OpenSession,
    Refusal,
    UpMessage,
    Welcome,
)
from verify_node.checks import (
    HELLO_FIRST,
    NOT_OPEN,
    Refused,
    check_ahead,
    check_draft,
    check_hello,
    check_open,
    check_session,
    check_text,
    target_failed,
)
from verify_node.outcomes import Moved, Outcome
from verify_node.planner import Entry, Limits, Planner, Round, plan
from verify_node.scheduler import Observation, Scheduler
from verify_node.sessions import MAX_WINDOW, SMOOTHING, WINDOW, Peer, Session

FORGOTTEN_S = 30.0
"""A session that its draft node has not mentioned for so long was given up there: its Close was lost. (Draft nodes
repeat themselves at least every 8 s; one that comes back later is told to reopen.)"""


class Send(Struct, frozen=True):
    """The only kind of action: a message for a peer."""

    peer_id: bytes
    message: DownMessage


class VerifyCore:
    """The verify node without its body."""

    def __init__(
        self,
        *,
        welcome: Welcome,
        limits: Limits,
        planner: Planner,
        scheduler: Scheduler,
        pool: PagePool,
        cost: Refined | None = None,
        max_sessions: int = 1024,
        max_client_sessions: int = 64,
    ) -> None:
        if limits.max_round_tokens <= limits.budget:
            raise ConfigError(
                f"--max-round-tokens {limits.max_round_tokens} leaves no room beside --budget {limits.budget}; "
                f"it must be larger than the budget"
            )
        self.welcome = welcome
        self.limits = limits
        self.planner = planner
        self.scheduler = scheduler
        self.pool = pool
        self.cost = cost if cost is not None else Refined()
        self.max_sessions = max_sessions
        self.max_client_sessions = max_client_sessions
        self.context_len = min(welcome.context_len, pool.num_pages * pool.page_size)
        self.peers: dict[bytes, Peer] = {}
        self.sessions: dict[bytes, Session] = {}
        self.refusals: Counter[str] = Counter()
        self.num_rounds = 0
        self.round_s = 0.0  # smoothed duration of a round
        self.wake_at = 0.0  # when `plan` or `tick` may have something to do, if nothing happens before
        self._held: tuple[Session, float] | None = None  # no round before that time, while its draft is on its way
        self._in_flight: Round | None = None
        self._taking_part: dict[bytes, Session] = {}  # in the round in flight
        self._num_alone = 0  # rounds of one session each that are left, to find the one that the target fails on
        self._released: set[bytes] = set()  # sessions whose memory is freed when no round is in flight
        self._num_opened = 0
        self._heartbeat_at = 0.0

    # -- events ----------------------------------------------------------------------------------------------------

    def receive(self, peer_id: bytes, message: UpMessage, now: float) -> list[Send]:
        """A peer's message; everything but a Hello is for peers that said Hello."""
        if isinstance(message, Hello):
            return self._hello(peer_id, message, now)
        peer = self.peers.get(peer_id)
        if peer is None:
            return self._refuse(peer_id, HELLO_FIRST)
        peer.last_seen = now
        match message:
            case OpenSession():
                return self._open(peer, message, now)
            case Draft():
                return self._draft(peer, message, now)
            case Ack():
                return self._ack(peer, message, now)
            case Close():
                return self._close(peer, message)
            case Heartbeat():
                return []

    def reject(self, peer_id: bytes, error: ProtocolError) -> list[Send]:
        """Bytes that were no acceptable message; whoever sent them is told, and nobody else notices."""
        refusal = refusal_for(error)
        self.refusals[refusal.code] += 1
        return [Send(peer_id, refusal)]

    def tick(self, now: float) -> list[Send]:
        """Drops peers whose lease ran out, sessions that nobody wants any more, and sends heartbeats when due."""
        for peer in [peer for peer in self.peers.values() if now - peer.last_seen > self.welcome.lease_s]:
            del self.peers[peer.peer_id]
            self._drop_sessions_of(peer)
        forgotten_s = max(FORGOTTEN_S, self.welcome.lease_s)
        for session in [session for session in self.sessions.values() if now - session.heard_at > forgotten_s]:
            self._drop(session)
        if now < self._heartbeat_at:
            return []
        self._heartbeat_at = now + self.welcome.heartbeat_s
        return [Send(peer_id, Heartbeat(self.welcome.boot_id)) for peer_id in self.peers]

    def plan(self, now: float) -> Round | None:
        """The next round if it may start now; else `wake_at` says when to ask again."""
        self.wake_at = self._heartbeat_at
        if self._in_flight is not None or self._is_held(now):
            return None
        self._free_released()
        sessions = [session for session in self.sessions.values() if not session.finished]
        ready = [session for session in sessions if session.draft or self._may_advance(session)]
        awaited = next((session for session in reversed(sessions) if session.awaits_draft), None)
        ready_at = self.planner.ready_at(awaited, ready, self.limits)
        if ready_at > now:
            self._held = (awaited, ready_at) if awaited is not None and ready else None
            self.wake_at = min(self.wake_at, ready_at)
            return None
        return self._start(sessions, ready)

    def _is_held(self, now: float) -> bool:
        """Whether `plan` would say what it said last time: it is asked after every message, and looks at everybody."""
        if self._held is None:
            return False
        awaited, ready_at = self._held
        if now < ready_at and awaited.awaits_draft and self.sessions.get(awaited.session_id) is awaited:
            self.wake_at = min(self.wake_at, ready_at)
            return True
        self._held = None
        return False

    def finish(self, outcomes: Sequence[Outcome], duration_s: float, now: float) -> list[Send]:
        """The round in flight is done: commit, observe, allocate, and one Verdict for each session that moved."""
        done, self._in_flight = self._in_flight, None
        if done is None:
            raise RuntimeError("no round is in flight")
        self.cost.observe(done.num_tokens, len(done.entries), done.context_tokens, duration_s)
        self.round_s += (duration_s - self.round_s) * (SMOOTHING if self.round_s else 1.0)
        self._num_alone = max(0, self._num_alone - 1)
        by_session = {outcome.session_id: outcome for outcome in outcomes}
        moved: list[Moved] = []
        sends: list[Send] = []
        for entry in done.entries:
            session = self._taking_part[entry.session_id]
            if self.sessions.get(entry.session_id) is not session:
                continue  # closed meanwhile, or opened again
            session.ready_since = now
            if not entry.samples:
                session.num_cached = entry.base_len
                continue
            outcome = by_session[entry.session_id]
            if outcome.failed:
                sends += self._give_up(session, outcome.failed)
            else:
                moved.append(self._commit(session, entry, outcome))
        self._observe(done, moved)
        return sends + self._verdicts(done, moved, now)

    def abort(self, why: str) -> list[Send]:
        """The round in flight failed as a whole (out of memory, say): nothing was revealed, so it is made again.

        Then the sessions go one by one, as often as there were sessions; one that the target fails on alone is given
        up, and the others never learn of it.
        """
        failed, self._in_flight = self._in_flight, None
        if failed is None:
            raise RuntimeError("no round is in flight")
        self._num_alone = max(self._num_alone, len(failed.entries))
        for entry in failed.entries:
            session = self._taking_part[entry.session_id]
            if self.sessions.get(entry.session_id) is not session:
                continue
            self.pool.truncate(entry.session_id, min(session.num_cached, self.pool.length(entry.session_id)))
            if len(failed.entries) == 1:
                return self._give_up(session, why)
        return []

    def _give_up(self, session: Session, why: str) -> list[Send]:
        self._drop(session)
        return self._refuse(session.peer_id, target_failed(why), session.opened)

    # -- handshake and sessions ------------------------------------------------------------------------------------

    def _hello(self, peer_id: bytes, hello: Hello, now: float) -> list[Send]:
        if refused := check_hello(hello, self.welcome):
            return self._refuse(peer_id, refused)
        client = self.scheduler.client(hello.name)
        old = self.peers.get(peer_id)
        if old is not None and (old.client is not client or old.boot_id != hello.boot_id):
            self._drop_sessions_of(old)  # another process, or by another name: it knows nothing of them
        self.peers[peer_id] = Peer(peer_id, hello.boot_id, client, hello.draft_model, now)
        return [Send(peer_id, self.welcome)]

    def _open(self, peer: Peer, message: OpenSession, now: float) -> list[Send]:
        known = self.sessions.get(message.session_id)
        num_own = sum(session.client is peer.client for session in self.sessions.values())
        num_free = min(self.max_sessions - len(self.sessions), self.max_client_sessions - num_own)
        refused = check_open(message, peer.client, known, num_free) or check_text(
            message, self.welcome, self.context_len
        )
        if refused:
            return self._refuse(peer.peer_id, refused, message)
        if known is not None and known.epoch == message.epoch:
            known.peer_id = peer.peer_id
            known.heard_at = now
            return self._resend(known, len(message.prompt) + len(message.committed))
        if not any(other.client is peer.client and not other.finished for other in self.sessions.values()):
            peer.client.observed_round = self.num_rounds  # it was idle: its goodput is observed from now on
        session = self._new_session(peer, message, now)
        if known is not None:
            self._replace(known, session)
        self.sessions[message.session_id] = session
        return []

    def _new_session(self, peer: Peer, message: OpenSession, now: float) -> Session:
        tokens = [*message.prompt, *message.committed]
        self._num_opened += 1
        return Session(
            opened=message,
            peer_id=peer.peer_id,
            client=peer.client,
            acceptance=self.scheduler.session_acceptance(peer.client),
            wait=peer.client.wait,
            tokens=tokens,
            admitted=self._num_opened,
            acked=len(tokens),
            limit=min(len(message.prompt) + message.max_tokens, self.context_len),
            ready_since=now,
            heard_at=now,
        )

    def _replace(self, old: Session, new: Session) -> None:
        """A session opened again keeps its place, what was learned about it, and the memory that is still right."""
        new.admitted = old.admitted
        new.acceptance = old.acceptance
        new.share, new.round_trip_s, new.wait = old.share, old.round_trip_s, old.wait
        if self._in_flight is not None or old.session_id in self._released:
            self._released.add(old.session_id)
            return
        new.num_cached = min(old.num_cached, _common_prefix(old.tokens, new.tokens), len(new.tokens) - 1)
        self.pool.truncate(new.session_id, new.num_cached)

    def _close(self, peer: Peer, message: Close) -> list[Send]:
        session = self.sessions.get(message.session_id)
        if session is None:
            return []
        if refused := check_session(session, peer.client, min(message.epoch, session.epoch)):
            return self._refuse(peer.peer_id, refused, message)
        self._drop(session)
        return []

    def _drop_sessions_of(self, peer: Peer) -> None:
        for session in [session for session in self.sessions.values() if session.peer_id == peer.peer_id]:
            self._drop(session)

    def _drop(self, session: Session) -> None:
        del self.sessions[session.session_id]
        self._released.add(session.session_id)

    # -- drafts and acknowledgements -------------------------------------------------------------------------------

    def _find(self, peer: Peer, message: Draft | Ack, now: float) -> Session | Refused:
        """The session that a message is about, or why not."""
        session = self.sessions.get(message.session_id)
        if session is None:
            return NOT_OPEN
        if refused := check_session(session, peer.client, message.epoch):
            return refused
        session.peer_id = peer.peer_id
        session.heard_at = now
        return session

    def _draft(self, peer: Peer, draft: Draft, now: float) -> list[Send]:
        session = self._find(peer, draft, now)
        if isinstance(session, Refused):
            return self._refuse(peer.peer_id, session, draft)
        if draft.round == session.last_round and (session.draft is None or session.draft.assumes):
            return self._resend(session, session.acked if draft.assumes else draft.base_len)
        if session.draft is not None and draft.round == session.draft.round:
            return []
        if draft.assumes:
            return self._draft_ahead(session, draft, now)
        if refused := check_draft(draft, session, self.welcome.vocab_size):
            return self._refuse(peer.peer_id, refused, draft)
        session.draft = draft
        session.ready_since = now
        session.cannot_draft = not draft.tokens
        if draft.tokens:
            session.client.observe_drafting(draft.drafting_s, len(draft.tokens))
            session.observe_wait(now, ahead=False)
        session.acknowledge(draft.base_len, now - draft.drafting_s)
        return []

    def _draft_ahead(self, session: Session, draft: Draft, now: float) -> list[Send]:
        """A draft that hopes for a verdict: kept until that is made, or taken at once when it came after it.

        Its base is no acknowledgement, since it was sent before the verdict arrived.
        """
        if refused := check_ahead(draft, self.welcome):
            return self._refuse(session.peer_id, refused, draft)
        awaited = session.awaits_draft
        session.hope_for(draft, now)
        if awaited and not session.awaits_draft:
            session.ready_since = now
        return []

    def _ack(self, peer: Peer, ack: Ack, now: float) -> list[Send]:
        session = self._find(peer, ack, now)
        if isinstance(session, Refused):
            return self._refuse(peer.peer_id, session, ack)
        if ack.base_len > len(session.tokens):
            what = f"{ack.base_len} tokens are more than the {len(session.tokens)} committed here"
            return self._refuse(peer.peer_id, Refused("wrong_base", what, "reopen the session"), ack)
        if ack.base_len > session.acked:
            if not session.is_ready(self._window(session)):
                session.ready_since = now
            session.acknowledge(ack.base_len, now)
            return self._resend(session, ack.base_len) if session.finished else []
        lacking = ack.base_len < len(session.tokens) or session.finished
        return self._resend(session, ack.base_len) if lacking else []

    def _resend(self, session: Session, base_len: int) -> list[Send]:
        """Everything from base_len on in one verdict; nothing when there is none yet."""
        last = session.last_verdict
        first = len(session.opened.prompt)
        if last is None or not first <= base_len <= len(session.tokens):
            return []
        session.sent.clear()  # which of the two an answer is to, cannot be told
        return [Send(session.peer_id, replace(last, base_len=base_len, tokens=tuple(session.tokens[base_len:])))]

    def _may_advance(self, session: Session) -> bool:
        """Whether a session without a draft can be moved forward: it needs none, and its draft node keeps up."""
        return not session.assigned and session.is_ready(self._window(session))

    def _window(self, session: Session) -> int:
        """Tokens that may be on their way: 16, or two round trips' worth of rounds, at most 256."""
        rounds = 2 * session.round_trip_s / self.round_s if self.round_s else 0
        return min(MAX_WINDOW, max(WINDOW, int(rounds)))

    # -- rounds ----------------------------------------------------------------------------------------------------

    def _start(self, sessions: list[Session], ready: list[Session]) -> Round | None:
        if self._num_alone:
            ready = [min(ready, key=lambda session: (session.ready_since, session.admitted))]
        planned = plan(self.num_rounds + 1, sessions, ready, self.limits, self.pool)
        for session_id in planned.preempted:
            self.sessions[session_id].num_cached = 0
        if not planned.entries:
            return None
        self.num_rounds = planned.number
        self._in_flight = planned
        self._taking_part = {entry.session_id: self.sessions[entry.session_id] for entry in planned.entries}
        return planned

    def _free_released(self) -> None:
        for session_id in self._released:
            self.pool.free(session_id)
            if session_id in self.sessions:
                self.sessions[session_id].num_cached = 0
        self._released.clear()

    def _commit(self, session: Session, entry: Entry, outcome: Outcome) -> Moved:
        base_len, answered = len(session.tokens), session.draft
        taken = session.extend(outcome.tokens)
        session.num_cached = entry.base_len + outcome.num_accepted
        self.pool.truncate(session.session_id, session.num_cached)
        if entry.draft_round is not None:
            session.last_round = entry.draft_round
            session.draft = None
        if session.finished:
            self.pool.free(session.session_id)
            session.num_cached = 0
        return Moved(session, entry, outcome, base_len, taken, answered)

    def _observe(self, done: Round, moved: list[Moved]) -> None:
        drafting = [session for session in self.sessions.values() if session.is_drafting]
        over_budget = [key for key in done.deferred if key in self.sessions and self.sessions[key].num_cached]
        self.scheduler.observe_shares(drafting, {*done.verified, *over_budget})
        self.scheduler.observe(
            done.number,
            [
                Observation(move.session, move.outcome.agreement, move.entry.num_drafted, len(move.taken))
                for move in moved
            ],
        )

    def _verdicts(self, done: Round, moved: list[Moved], now: float) -> list[Send]:
        participants = [move.session for move in moved if not move.session.finished]
        told = {session.session_id for session in participants}
        active = [
            session
            for session in self.sessions.values()
            if not session.finished and (session.assigned is not None or session.session_id in told)
        ]
        lengths = self.scheduler.allocate(done.number, active, participants, self.round_s)
        sends: list[Send] = []
        for move in moved:
            session = move.session
            session.answered_at = now if move.answered is not None else None
            dropped = session.settle_ahead(now)
            session.last_verdict = move.verdict(lengths.get(session.session_id, 0), dropped)
            session.sent.append((len(session.tokens), now))
            if move.outcome.invalid:
                refused = Refused("proposal", move.outcome.invalid, "send exactly what was sampled from")
                sends += self._refuse(session.peer_id, refused, move.answered)
            sends.append(Send(session.peer_id, session.last_verdict))
        return sends

    def _refuse(
        self, peer_id: bytes, refused: Refused, about: OpenSession | Draft | Ack | Close | None = None
    ) -> list[Send]:
        """Says no by name; the refusal echoes what it is about."""
        self.refusals[refused.code] += 1
        refusal = Refusal(refused.code, refused.what, refused.what_to_do)
        if about is not None:
            number = about.round if isinstance(about, Draft) else None
            refusal = replace(refusal, session_id=about.session_id, epoch=about.epoch, round=number)
        return [Send(peer_id, refusal)]


def _common_prefix(left: list[int], right: list[int]) -> int:
    shorter = min(len(left), len(right))
    if left[:shorter] == right[:shorter]:
        return shorter
    return next(index for index in range(shorter) if left[index] != right[index])
