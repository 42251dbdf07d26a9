"""Sessions, rounds and verdicts as a state machine: events in, messages out. No I/O, no clock of its own, no torch.

Events: `receive` (a peer's message), `reject` (a peer's unacceptable bytes), `tick` (time passes), `plan` (may a round
start?) and `finish` (a round is done). Each is given the time and gives back what to send. The daemon feeds it from
sockets and the real clock; a simulation may feed the same class from a virtual one.

Between `plan` and `finish` a round is in flight: the target reads and writes key/value memory, so the pool is changed
only when none is.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from goodspeed.codec import refusal_for
from goodspeed.engine.pages import PagePool
from goodspeed.errors import ConfigError, ProtocolError
from goodspeed.messages import (
    VERSION,
    Ack,
    Close,
    DownMessage,
    Draft,
    Heartbeat,
    Hello,
    OpenSession,
    Refusal,
    RefusalCode,
    UpMessage,
    Verdict,
    Welcome,
)
from verify_node.planner import Entry, Limits, Planner, Round, plan
from verify_node.scheduler import Observation, Scheduler
from verify_node.sessions import MAX_WINDOW, WINDOW, Peer, Session

SMOOTHING = 0.2
"""Of round durations and round trips."""


@dataclass(frozen=True, slots=True)
class Send:
    """The only kind of action: a message for a peer."""

    peer_id: bytes
    message: DownMessage


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the target decided for one entry that samples: the accepted tokens and one more."""

    session_id: bytes
    tokens: tuple[int, ...]
    num_accepted: int
    agreement: float  # sum over the drafted positions of Eq. (3)'s indicator
    invalid: str = ""  # why the proposal was not used


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
        max_sessions: int = 1024,
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
        self.max_sessions = max_sessions
        self.context_len = min(welcome.context_len, pool.num_pages * pool.page_size)
        self.peers: dict[bytes, Peer] = {}
        self.sessions: dict[bytes, Session] = {}
        self.refusals: Counter[str] = Counter()
        self.num_rounds = 0
        self.round_s = 0.0  # smoothed duration of a round
        self.wake_at = 0.0  # when `plan` or `tick` may have something to do, if nothing happens before
        self._in_flight: Round | None = None
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
            return self._refuse(peer_id, "hello_first", "this verify node does not know you", "send Hello, then reopen")
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
        """Drops peers whose lease ran out, with their sessions, and sends heartbeats when they are due."""
        for peer in [peer for peer in self.peers.values() if now - peer.last_seen > self.welcome.lease_s]:
            del self.peers[peer.peer_id]
            for session in [session for session in self.sessions.values() if session.peer_id == peer.peer_id]:
                self._drop(session)
        if now < self._heartbeat_at:
            return []
        self._heartbeat_at = now + self.welcome.heartbeat_s
        return [Send(peer_id, Heartbeat(self.welcome.boot_id)) for peer_id in self.peers]

    def plan(self, now: float) -> Round | None:
        """The next round if it may start now; else `wake_at` says when to ask again."""
        self.wake_at = self._heartbeat_at
        if self._in_flight is not None:
            return None
        self._free_released()
        sessions = [session for session in self.sessions.values() if not session.finished]
        ready = [session for session in sessions if session.is_ready(self._window(session))]
        ready_at = self.planner.ready_at(sessions, ready, self.limits)
        if ready_at > now:
            self.wake_at = min(self.wake_at, ready_at)
            return None
        return self._start(sessions, ready)

    def finish(self, outcomes: Sequence[Outcome], duration_s: float, now: float) -> list[Send]:
        """The round in flight is done: commit, observe, allocate, and one Verdict for each session that moved."""
        done, self._in_flight = self._in_flight, None
        if done is None:
            raise RuntimeError("no round is in flight")
        self.round_s += (duration_s - self.round_s) * (SMOOTHING if self.round_s else 1.0)
        by_session = {outcome.session_id: outcome for outcome in outcomes}
        moved: list[_Moved] = []
        for entry in done.entries:
            session = self.sessions.get(entry.session_id)
            if session is None or session.epoch != entry.epoch:
                continue
            session.served_round = done.number
            session.ready_since = now
            if not entry.samples:
                session.num_cached = entry.base_len
                continue
            moved.append(self._commit(session, entry, by_session[entry.session_id]))
        self._observe(done, moved)
        return self._verdicts(done, moved, now)

    # -- handshake and sessions ------------------------------------------------------------------------------------

    def _hello(self, peer_id: bytes, hello: Hello, now: float) -> list[Send]:
        if hello.version != VERSION:
            what = f"protocol version {hello.version} is not {VERSION}"
            return self._refuse(peer_id, "version", what, "run the same release of GoodSpeed on both nodes")
        if hello.tokenizer != self.welcome.tokenizer:
            what = f"the draft model's tokenizer {hello.tokenizer!r} is not the target's {self.welcome.tokenizer!r}"
            return self._refuse(peer_id, "tokenizer", what, "choose a draft model of the target's family")
        client = self.scheduler.client(hello.name)
        self.peers[peer_id] = Peer(peer_id, hello.boot_id, client, hello.draft_model, now)
        return [Send(peer_id, self.welcome)]

    def _open(self, peer: Peer, message: OpenSession, now: float) -> list[Send]:
        known = self.sessions.get(message.session_id)
        refused = self._check_open(peer, message, known)
        if refused:
            code, what, what_to_do = refused
            return self._refuse(peer.peer_id, code, what, what_to_do, message.session_id, message.epoch)
        if known is not None and known.epoch == message.epoch:
            known.peer_id = peer.peer_id
            return self._resend(known, len(message.prompt) + len(message.committed))
        session = self._new_session(peer, message, now)
        if known is not None:
            self._replace(known, session)
        elif not any(other.client is peer.client for other in self.sessions.values()):
            peer.client.observed_round = self.num_rounds  # it was idle: its goodput is observed from now on
        self.sessions[message.session_id] = session
        return []

    def _check_open(
        self, peer: Peer, message: OpenSession, known: Session | None
    ) -> tuple[RefusalCode, str, str] | None:
        if known is not None and known.client is not peer.client:
            return "not_owner", "this session belongs to another client", "choose random session ids"
        if known is not None and message.epoch < known.epoch:
            return "stale_epoch", f"epoch {message.epoch} is below {known.epoch}", "raise the epoch to reopen"
        if known is None and len(self.sessions) >= self.max_sessions:
            return "too_many_sessions", f"{self.max_sessions} sessions are open", "try again later"
        if not message.prompt:
            return "prompt", "the prompt is empty", "send at least one token"
        num_tokens = len(message.prompt) + len(message.committed)
        if num_tokens >= self.context_len:
            what = f"{num_tokens} tokens leave no room in a context of {self.context_len}"
            return "prompt", what, "shorten the prompt"
        if len(message.committed) >= message.max_tokens:
            return "prompt", f"{len(message.committed)} committed tokens reach max_tokens", "the session is complete"
        if max(message.prompt + message.committed) >= self.welcome.vocab_size:
            what = f"a token id is outside the vocabulary of {self.welcome.vocab_size}"
            return "vocabulary", what, "encode with the target's tokenizer"
        if message.verification not in self.welcome.verifications:
            return "unsupported", f"verification {message.verification!r} is off here", "use another rule"
        return None

    def _new_session(self, peer: Peer, message: OpenSession, now: float) -> Session:
        tokens = [*message.prompt, *message.committed]
        self._num_opened += 1
        return Session(
            opened=message,
            peer_id=peer.peer_id,
            client=peer.client,
            acceptance=self.scheduler.session_acceptance(peer.client),
            tokens=tokens,
            admitted=self._num_opened,
            acked=len(tokens),
            limit=min(len(message.prompt) + message.max_tokens, self.context_len),
            ready_since=now,
            served_round=self.num_rounds,
            sent_at=now,
        )

    def _replace(self, old: Session, new: Session) -> None:
        """A session opened again keeps its place, what was learned about it, and the memory that is still right."""
        new.admitted = old.admitted
        new.acceptance = old.acceptance
        if self._in_flight is not None or old.session_id in self._released:
            self._released.add(old.session_id)
            return
        new.num_cached = min(old.num_cached, _common_prefix(old.tokens, new.tokens), len(new.tokens) - 1)
        self.pool.truncate(new.session_id, new.num_cached)

    def _close(self, peer: Peer, message: Close) -> list[Send]:
        session = self.sessions.get(message.session_id)
        if session is not None and session.client is peer.client and message.epoch >= session.epoch:
            self._drop(session)
        return []

    def _drop(self, session: Session) -> None:
        del self.sessions[session.session_id]
        self._released.add(session.session_id)

    # -- drafts and acknowledgements -------------------------------------------------------------------------------

    def _find(self, peer: Peer, message: Draft | Ack) -> Session | list[Send]:
        """The session that a message is about, or what to answer instead."""
        number = message.round if isinstance(message, Draft) else None
        session = self.sessions.get(message.session_id)
        if session is None or message.epoch > session.epoch:
            what, todo = "this session is not open here", "reopen it with what is committed"
            return self._refuse(peer.peer_id, "unknown_session", what, todo, message.session_id, message.epoch, number)
        if session.client is not peer.client:
            what, todo = "this session belongs to another client", "use your own sessions"
            return self._refuse(peer.peer_id, "not_owner", what, todo, message.session_id, message.epoch, number)
        if message.epoch < session.epoch:
            what, todo = f"epoch {message.epoch} is below {session.epoch}", "drop what is left of the old epoch"
            return self._refuse(peer.peer_id, "stale_epoch", what, todo, message.session_id, message.epoch, number)
        session.peer_id = peer.peer_id
        return session

    def _draft(self, peer: Peer, draft: Draft, now: float) -> list[Send]:
        session = self._find(peer, draft)
        if isinstance(session, list):
            return session
        if draft.round == session.last_round and session.draft is None:
            return self._resend(session, draft.base_len)
        if session.draft is not None and draft.round == session.draft.round:
            return []
        refused = self._check_draft(session, draft)
        if refused:
            code, what, what_to_do = refused
            return self._refuse(peer.peer_id, code, what, what_to_do, draft.session_id, draft.epoch, draft.round)
        session.draft = draft
        session.acked = draft.base_len
        session.ready_since = now
        self._observe_round_trip(session, now - draft.drafting_s)
        return []

    def _check_draft(self, session: Session, draft: Draft) -> tuple[RefusalCode, str, str] | None:
        if draft.round <= session.last_round:
            what = f"round {draft.round} is not above {session.last_round}"
            return "stale_round", what, "wait for the verdict, or acknowledge what is applied"
        if session.finished or not session.assigned or session.draft is not None:
            return "not_assigned", "no draft is expected from this session now", "wait for a verdict with a length"
        if len(draft.tokens) > session.assigned:
            what = f"{len(draft.tokens)} tokens exceed the {session.assigned} assigned"
            return "too_long", what, "propose at most next_length tokens"
        if draft.base_len != len(session.tokens) or draft.base_digest != session.base_digest():
            what = f"the draft was made on {draft.base_len} tokens that are not the {len(session.tokens)} committed"
            return "wrong_base", what, "reopen the session with what is committed"
        if any(token >= self.welcome.vocab_size for token in draft.tokens):
            what = f"a drafted id is outside the vocabulary of {self.welcome.vocab_size}"
            return "vocabulary", what, "mask ids beyond the tokenizer"
        if session.opened.verification == "ratio" and draft.tokens and draft.proposal is None:
            return (
                "proposal",
                "a draft under the ratio rule came without its distributions",
                "send what was sampled from",
            )
        return None

    def _ack(self, peer: Peer, ack: Ack, now: float) -> list[Send]:
        session = self._find(peer, ack)
        if isinstance(session, list):
            return session
        if ack.base_len > len(session.tokens):
            what = f"{ack.base_len} tokens are more than the {len(session.tokens)} committed here"
            return self._refuse(peer.peer_id, "wrong_base", what, "reopen the session", ack.session_id, ack.epoch)
        if ack.base_len < session.acked or (session.finished and ack.base_len <= len(session.tokens)):
            return self._resend(session, ack.base_len)
        repeated = ack.base_len == session.acked and ack.base_len < len(session.tokens)
        if not session.is_ready(self._window(session)):
            session.ready_since = now
        if ack.base_len > session.acked:
            self._observe_round_trip(session, now)
        session.acked = ack.base_len
        return self._resend(session, ack.base_len) if repeated else []

    def _resend(self, session: Session, base_len: int) -> list[Send]:
        """Everything from base_len on in one verdict; nothing when there is none yet."""
        last = session.last_verdict
        first = len(session.opened.prompt)
        if last is None or not first <= base_len <= len(session.tokens):
            return []
        return [Send(session.peer_id, replace(last, base_len=base_len, tokens=tuple(session.tokens[base_len:])))]

    def _observe_round_trip(self, session: Session, until: float) -> None:
        seconds = max(0.0, until - session.sent_at)
        session.round_trip_s += (seconds - session.round_trip_s) * (SMOOTHING if session.round_trip_s else 1.0)

    def _window(self, session: Session) -> int:
        """Tokens that may be on their way: 16, or two round trips' worth of rounds, at most 256."""
        rounds = 2 * session.round_trip_s / self.round_s if self.round_s else 0
        return min(MAX_WINDOW, max(WINDOW, int(rounds)))

    # -- rounds ----------------------------------------------------------------------------------------------------

    def _start(self, sessions: list[Session], ready: list[Session]) -> Round | None:
        planned = plan(self.num_rounds + 1, sessions, ready, self.limits, self.pool)
        for session_id in planned.preempted:
            self.sessions[session_id].num_cached = 0
        if not planned.entries:
            return None
        self.num_rounds = planned.number
        self._in_flight = planned
        return planned

    def _free_released(self) -> None:
        for session_id in self._released:
            self.pool.free(session_id)
            if session_id in self.sessions:
                self.sessions[session_id].num_cached = 0
        self._released.clear()

    def _commit(self, session: Session, entry: Entry, outcome: Outcome) -> "_Moved":
        base_len = len(session.tokens)
        taken = session.extend(outcome.tokens)
        session.num_cached = entry.base_len + outcome.num_accepted
        self.pool.truncate(session.session_id, session.num_cached)
        if entry.draft_round is not None:
            session.last_round = entry.draft_round
            session.draft = None
        if session.finished:
            self.pool.free(session.session_id)
        return _Moved(session, entry, outcome, base_len, taken)

    def _observe(self, done: Round, moved: list["_Moved"]) -> None:
        drafting = [session for session in self.sessions.values() if session.is_drafting]
        self.scheduler.observe_shares(drafting, frozenset(done.verified))
        self.scheduler.observe(
            done.number,
            [Observation(move.session, move.outcome.agreement, move.num_verified, len(move.taken)) for move in moved],
        )

    def _verdicts(self, done: Round, moved: list["_Moved"], now: float) -> list[Send]:
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
            session.last_verdict = move.verdict(lengths.get(session.session_id, 0))
            session.sent_at = now
            if move.outcome.invalid:
                sends += self._refuse(
                    session.peer_id,
                    "proposal",
                    move.outcome.invalid,
                    "send exactly what was sampled from",
                    session.session_id,
                    session.epoch,
                    move.entry.draft_round,
                )
            sends.append(Send(session.peer_id, session.last_verdict))
        return sends

    def _refuse(
        self,
        peer_id: bytes,
        code: RefusalCode,
        what: str,
        what_to_do: str,
        session_id: bytes | None = None,
        epoch: int = 0,
        number: int | None = None,
    ) -> list[Send]:
        self.refusals[code] += 1
        return [Send(peer_id, Refusal(code, what, what_to_do, session_id, epoch, number))]


@dataclass(frozen=True, slots=True)
class _Moved:
    """A session that a round gave tokens to."""

    session: Session
    entry: Entry
    outcome: Outcome
    base_len: int
    taken: tuple[int, ...]

    @property
    def num_verified(self) -> int:
        return 0 if self.outcome.invalid else self.entry.num_drafted

    def verdict(self, next_length: int) -> Verdict:
        return Verdict(
            session_id=self.session.session_id,
            epoch=self.session.epoch,
            round=self.entry.draft_round,
            base_len=self.base_len,
            tokens=self.taken,
            num_verified=self.num_verified,
            num_accepted=self.outcome.num_accepted,
            next_length=next_length,
            finish_reason=self.session.finish_reason,
        )


def _common_prefix(left: list[int], right: list[int]) -> int:
    shorter = min(len(left), len(right))
    if left[:shorter] == right[:shorter]:
        return shorter
    return next(index for index in range(shorter) if left[index] != right[index])
