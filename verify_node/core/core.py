"""Rounds and verdicts as a state machine: events in, messages out. No I/O, no clock of its own, no torch.

Events: `receive` (a peer's message), `reject` (a peer's unacceptable bytes), `enrol` (whose keys may take part),
`know_replicas` (who else is in the fleet), `tick` (time passes), `admit` (what is promised to those who asked), `plan`
(may a round start?), `finish` (a round is done), `abort`, `withdraw` and `fail` (a round, a decision or a message
raised an exception) and `drain` (the node stops). Each is given the time and returns the messages to send. The daemon
feeds it from sockets and the real clock; a simulation may feed the same class from a virtual one.

Who is connected and which sessions are open is in `register.py`, who is heard in `reception.py`; what a draft or an Ack
does to its session, in `incoming.py`; what is said, and who is put out, in `replies.py`; rounds, in `scheduler`.

Between `plan` and `finish` a round is in flight: the target reads and writes key/value memory, so the pool is changed
only when none is.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from math import inf

from goodspeed.engine.paged.pages import PagePool
from goodspeed.errors import ProtocolError
from goodspeed.fair.latency import Refined
from goodspeed.fair.smoothing import smoothed
from goodspeed.fleet.replicas import Load, Replica
from goodspeed.wire.codec import refusal_for
from goodspeed.wire.enrolled import Enrolled
from goodspeed.wire.handshake import Heartbeat, Hello, Leave, Welcome
from goodspeed.wire.messages import Ack, Close, Draft, OpenSession, UpMessage
from verify_node.core import invariants
from verify_node.core.admitting import admit, withdraw
from verify_node.core.counts import Counts
from verify_node.core.fleet import FleetReplies, Redirecting
from verify_node.core.incoming import Answer, repeat, take_ack, take_draft
from verify_node.core.load import load_of
from verify_node.core.rate_limit import RateLimiter
from verify_node.core.reception import Reception
from verify_node.core.register import Register
from verify_node.core.replies import Replies, Send
from verify_node.core.view import View
from verify_node.scheduler.allocate import Allocator
from verify_node.scheduler.commit import Moved, active, commit, observe, publish
from verify_node.scheduler.failures import IMPOSSIBLE, NOT_NUMBERS
from verify_node.scheduler.model_drafts import ModelDrafts
from verify_node.scheduler.pack import plan
from verify_node.scheduler.preempt import Preemption
from verify_node.scheduler.round import Outcome, Round, RoundLimits
from verify_node.scheduler.select import Choice
from verify_node.scheduler.start import Starting
from verify_node.session.checks import (
    HALF_DONE,
    NOT_ACKNOWLEDGED,
    STOPPING,
    Rejection,
    constraint_failed,
    message_failed,
    round_failed,
    target_failed,
)
from verify_node.session.client import Peer
from verify_node.session.session import SMOOTHING, Session
from verify_node.slo.allotting import Allotment
from verify_node.slo.promises import Promises

MAX_SUSPECTS = 64
"""Sessions that are remembered, the newest of those whose round failed at its end though they were alone."""

ROUNDS_KEPT = 64
"""Rounds after which what was kept of sessions that are over is forgotten."""

LEAST_HELD_S = 0.001
"""How soon a prompt that is held is looked at again, at least, where rounds take no time yet."""


class VerifyCore:
    """The verify node without its body."""

    def __init__(
        self,
        *,
        register: Register,
        limits: RoundLimits,
        allocator: Allocator,
        choice: Choice,
        is_shared: bool = False,
        pool: PagePool,
        cost: Refined,
        admission: str = "none",
        preemption: Preemption,
    ) -> None:
        """`settings.make_core` builds one from settings. is_shared: draft models may take this machine's time."""
        self.limits, self.allocator, self.choice = limits, allocator, choice
        self.model_drafts = ModelDrafts(is_shared)
        self.pool, self.cost, self.preemption = pool, cost, preemption
        self.promises = Promises(admission, cost, limits.max_round_tokens, pool)
        self.register = register
        self.context_len = register.context_len
        self.peers, self.sessions, self.diary = register.peers, register.sessions, register.diary
        self.redirecting = Redirecting(self.load, pool.page_size, register.welcome.target_fingerprint)
        self.counts = Counts()
        self.fleet_replies = FleetReplies(self.redirecting, register, self.promises, self.counts)
        self.draining = False  # the node stops
        self.rate_limiter = RateLimiter(register.max_client_sessions)
        self.replies = Replies(register, self.rate_limiter, self.counts)
        self.refusals = self.replies.refusals
        self.reception = Reception(register, self.replies, self.fleet_replies)
        self.starting = Starting(register.sessions, is_barrier=allocator.is_barrier)
        self.view = View(self)  # for those who watch
        self.num_rounds = 0
        self.round_s = 0.0  # smoothed duration of a round
        self.wake_at = 0.0  # when `plan` or `tick` may have something to do, if nothing happens before
        self._in_flight: Round | None = None
        self._being_planned: Sequence[Session] | None = None  # within `plan` only: those of whom a round is to be made
        self._is_allotting = False  # within `plan` only: what promises take of the round is worked out
        self._is_finishing = False  # within `finish` only
        self._taking_part: dict[bytes, Session] = {}  # in the round in flight, or else in the last
        self._decided_after = 0  # rounds
        self._suspects: dict[bytes, None] = {}  # the oldest first
        self._num_alone = 0  # rounds of one session each that are left, to find the one that rounds fail on
        self._heartbeat_at = 0.0

    @property
    def welcome(self) -> Welcome:
        """What every draft node is told."""
        return self.register.welcome

    @property
    def newest(self) -> Collection[Session]:
        """The sessions of the newest round, in flight or done; some may be closed by now."""
        return self._taking_part.values()

    @property
    def newest_number(self) -> int:
        """The number of the round that is planned, computed or finished now."""
        return self.num_rounds + (self._being_planned is not None)

    # -- events ----------------------------------------------------------------------------------------------------

    def enrol(self, enrolled: Mapping[str, Enrolled], now: float) -> list[Send]:
        """Replaces the enrolment. The sessions of a key that was removed or changed end at once."""
        return self.replies.revoke(self.register.enrol(enrolled, now), now)

    def know_replicas(self, own: str, replicas: Sequence[Replica], now: float) -> list[Send]:
        """The table of the fleet's replicas, this one among them by its name. Draft nodes are told what is new of it.

        The times of the replicas' loads are by the same clock as `now`.
        """
        return self.fleet_replies.know(own, replicas, now)

    def load(self, now: float) -> Load:
        """What this replica has to do."""
        return load_of(
            self.sessions.values(),
            welcome=self.welcome,
            pool=self.pool,
            promises=self.promises,
            cost=self.cost,
            limits=self.limits,
            max_sessions=self.register.max_sessions,
            round_s=self.round_s,
            is_draining=self.draining,
            now=now,
        )

    def receive(self, peer_id: bytes, message: UpMessage, now: float, principal: str | None = None) -> list[Send]:
        """A peer's message; everything but a Hello is for peers that said Hello.

        principal: the key that the sender proved to have, where there are keys; the name is only where it came from.
        """
        peer = self.reception.receive(peer_id, message, now, principal, draining=self.draining)
        if not isinstance(peer, Peer):
            return peer
        match message:
            case OpenSession():
                return self.replies.answer(peer_id, self._open(peer, message, now), message, now)
            case Draft() | Ack():
                return self.replies.answer(peer_id, self._hear(peer, message, now), message, now)
            case Close():
                return self.replies.answer(peer_id, self.register.close(peer, message), message, now)
            case Leave():
                self.register.leave(peer, now)
                return []
            case Heartbeat() | Hello():
                return []

    def reject(self, peer_id: bytes, error: ProtocolError, now: float, principal: str | None = None) -> list[Send]:
        """Bytes that were no acceptable message; whoever sent them is told, and nobody else notices."""
        if (instead := self.replies.listen(peer_id, now, principal)) is not None:
            return instead
        return self.replies.refuse(peer_id, refusal_for(error), now, principal=principal)

    def turned_away(self, key: str, now: float) -> None:
        """A key that is not enrolled got no connection: that is noted, and there is no peer to tell."""
        self.replies.turned_away(key, now)

    def count_bytes(self, peer_id: bytes, *, uplink: int = 0, downlink: int = 0) -> None:
        """Adds the bytes of a message to what its client has sent and was sent; unknown peers have no client."""
        if peer := self.peers.get(peer_id):
            peer.client.count_bytes(uplink=uplink, downlink=downlink)

    def tick(self, now: float) -> list[Send]:
        """Drops peers whose lease ran out, sessions that nobody wants any more, and sends heartbeats when due."""
        self.rate_limiter.expire(now)
        sends: list[Send] = []
        for session in self.register.expire(now):
            sends += self.replies.refuse(session.peer_id, NOT_ACKNOWLEDGED, now, about=session.opened)
        if now >= self._heartbeat_at:
            self._heartbeat_at = now + self.welcome.heartbeat_s
            sends += [Send(peer_id, Heartbeat(self.welcome.boot_id)) for peer_id in self.peers]
        return sends

    def admit(self, now: float) -> list[Send]:
        """Between two rounds: what is promised to those who asked meanwhile. They are told.

        What raises here is no round's fault: `withdraw` makes it good.
        """
        is_due = self.promises.may_change and self._decided_after != self.num_rounds
        if self._in_flight is not None or self.draining or not (is_due or self.promises.has_undecided):
            return []
        self._decided_after = self.num_rounds
        return admit(self.promises, self.register, self.replies, self.counts, self.fleet_replies, now)

    def withdraw(self, now: float) -> list[Send]:
        """Promises cannot be worked out: all of them end, and whoever asked gets none, or is refused if it wants that.

        They are told, and are served as well as can be.
        """
        return withdraw(self.promises, self.register, self.replies, self.counts, now)

    def plan(self, now: float) -> Round | None:
        """The next round if it may start now; else `wake_at` says when to ask again."""
        self.wake_at = self._heartbeat_at
        if self._in_flight is not None or self.draining:
            return None
        self._being_planned = ()
        self.register.free_released()
        if self.num_rounds % ROUNDS_KEPT == 0:
            self.choice.keep(self.sessions)
            self.preemption.keep(self.sessions, self.allocator.clients)
        start = self.starting.look(self.choice, self.num_rounds, self.round_s, now)
        self.wake_at = min(self.wake_at, self.starting.wake_at, now if self.promises.has_undecided else inf)
        planned = self._start(start.sessions, start.ready, now) if start is not None else None
        self._being_planned = None
        return planned

    def finish(self, outcomes: Sequence[Outcome], duration_s: float, now: float) -> list[Send]:
        """The round in flight is done: commit, observe, permit, and one Verdict for each session that moved."""
        done, self._in_flight = self._in_flight, None
        if done is None:
            raise RuntimeError("no round is in flight")
        self._is_finishing = True
        self.cost.observe(done.num_tokens, len(done.entries), done.context_tokens, duration_s)
        self.round_s = smoothed(self.round_s, duration_s, SMOOTHING)
        self._num_alone = max(0, self._num_alone - 1)
        moved, sends = self._commit(done, outcomes, now)
        sends += self.replies.disprove(moved, now)
        moved = [move for move in moved if self.register.has(move.session)]  # but of whoever was just put out
        observe(done, moved, self.allocator)
        self.counts.finished(done, moved, duration_s)
        still_open = {key: session for key, session in self._taking_part.items() if self.register.has(session)}
        self.preemption.finished(done, moved, still_open, duration_s)
        going_on = active(self.sessions)
        self.model_drafts.finished(moved, going_on, now)
        sends += self._tell(done, moved, going_on, now)
        self.promises.finished(self.sessions, self.round_s, now)
        self._is_finishing = False
        for session_id in self._taking_part:
            self._suspects.pop(session_id, None)
        return sends

    def _tell(self, done: Round, moved: Sequence[Moved], going_on: Sequence[Session], now: float) -> list[Send]:
        """The verdicts of a round, with what each session may draft next."""
        permits, owes_more = self.model_drafts.permits, self.choice.owes_more
        permitted: Mapping[bytes, int] = {}
        if permits or any(owes_more(move.session) for move in moved):
            permitted = self.allocator.permit(done.number, going_on, self.round_s)
        sends = []
        for move in moved:
            session = move.session
            may_draft = permitted.get(session.session_id, 0) if permits or owes_more(session) else 0
            session.permit(may_draft, done.number)
            verdict = move.verdict(session.may_draft, self.choice.least_probability(session))
            waits = self.allocator.waits(session) and done.number >= session.client.retry_round
            session.tell(verdict, now, waits=waits, window=session.window(self.round_s))
            sends.append(self.replies.tell(session.peer_id, verdict))
        return sends

    def _commit(self, done: Round, outcomes: Sequence[Outcome], now: float) -> tuple[list[Moved], list[Send]]:
        """Commits what came of each session that is still open; returns those that moved, and what others are told."""
        by_session = {outcome.session_id: outcome for outcome in outcomes}
        moved: list[Moved] = []
        sends: list[Send] = []
        for entry in done.entries:
            session = self._taking_part[entry.session_id]
            if not self.register.has(session):
                continue  # closed meanwhile, or opened again
            session.advance(now)
            if not entry.samples:
                publish(session, self.pool)
            if not entry.samples and entry.prompt_rows is None:
                continue
            outcome = by_session[entry.session_id]
            session.read_prompt(outcome.prompt_logprobs)
            if entry.samples and not outcome.is_possible(len(entry.first_choices)):
                outcome = Outcome(outcome.session_id, (), 0, 0.0, failed=IMPOSSIBLE)
            if outcome.failed:
                if outcome.failed in (NOT_NUMBERS, IMPOSSIBLE):
                    self._distrust(session)
                why = constraint_failed(outcome.failed) if outcome.breaks_constraint else target_failed(outcome.failed)
                sends += self._give_up(session, why, now)
            elif entry.samples:
                moved.append(commit(session, entry, outcome, self.pool))
        return moved, sends

    def abort(self, why: str, now: float) -> list[Send]:
        """A round failed as a whole, in `plan`, in its forward pass (out of memory, say) or in `finish`.

        It is made again: nothing was revealed. After a half-done `finish` its sessions end here, and their draft nodes
        open them again. Then the sessions go one by one, as often as there were sessions; one whose round fails though
        it is alone is given up, after a half-done `finish` only at the second time, and the others never learn of it.
        Where the fault is in what promises take of a round, these end, and no session.
        """
        half_done, computed, failed = self._is_finishing, self._in_flight, list(self.failing)
        of_promises, self._is_allotting = self._is_allotting, False
        self._in_flight, self._is_finishing, self._being_planned = None, False, None
        self.counts.num_failed += 1
        if of_promises:
            return self.withdraw(now)
        self._num_alone = max(self._num_alone, len(failed))
        fed_from = {entry.session_id: entry.start for entry in computed.entries} if computed is not None else {}
        sends: list[Send] = []
        for session in [session for session in failed if self.register.has(session)]:
            if (start := fed_from.get(session.session_id)) is not None:
                self.pool.truncate(session.session_id, min(start, self.pool.length(session.session_id)))
            if len(failed) == 1 and (not half_done or session.session_id in self._suspects):
                self._distrust(session)
                sends += self._give_up(session, round_failed(why), now)
            elif half_done:
                if len(failed) == 1:
                    self._suspect(session)
                self.register.drop(session, may_return=True)
                sends += self.replies.refuse(session.peer_id, HALF_DONE, now, about=session.opened)
        return sends

    @property
    def failing(self) -> Collection[Session]:
        """The sessions of the round that is planned, computed or finished now, if it fails."""
        begun = self._is_finishing or self._in_flight is not None
        return self._taking_part.values() if begun else self._being_planned or ()

    def fail(self, peer_id: bytes, message: UpMessage | ProtocolError, why: str, now: float) -> list[Send]:
        """A message raised an exception: its session, which may be half changed, is given up, and nobody else notices.

        Nothing ends where it is about no session, or about another client's.
        """
        peer = self.peers.get(peer_id)
        if peer is None or isinstance(message, ProtocolError | Hello | Heartbeat | Leave):
            return []
        session = self.sessions.get(message.session_id)
        if session is not None and session.client is peer.client:
            self.register.drop(session)
        return self.replies.refuse(peer_id, message_failed(why), now, about=message)

    def validate(self) -> None:
        """Raises BrokenInvariant, naming the first thing that is wrong and where."""
        register, clients = self.register, self.allocator.clients
        invariants.check_register(register, clients)
        invariants.check_sessions(self.sessions)
        invariants.check_clients(clients, self.num_rounds)
        if self._in_flight is not None:
            invariants.check_round(self._in_flight, self._taking_part, register, self.limits)
        else:
            invariants.check_pool(self.pool, self.sessions, register.released)
        invariants.check_promises(self.promises, self.sessions, self.pool)
        invariants.check_memories(self.diary, self.rate_limiter)

    def drain(self) -> None:
        """The node stops: no session is opened and no round begins any more; the one in flight ends as ever."""
        self.draining = True

    def farewell(self, now: float) -> list[Send]:
        """Makes the last messages, after the last verdicts: the node stops. It counts as no offence.

        Open sessions are sent to other replicas, if there are any.
        """
        return self.fleet_replies.leave(now) + [Send(peer_id, STOPPING.to_message()) for peer_id in self.peers]

    def _suspect(self, session: Session) -> None:
        """Its round failed at its end, maybe by no fault of its own: it has one more try."""
        self._suspects[session.session_id] = None
        if len(self._suspects) > MAX_SUSPECTS:
            del self._suspects[next(iter(self._suspects))]

    def _distrust(self, session: Session) -> None:
        """Nobody else is given its pages: what they hold may be what the target failed on."""
        self.pool.withdraw(session.session_id)

    def _give_up(self, session: Session, why: Rejection, now: float) -> list[Send]:
        self.register.drop(session)
        return self.replies.refuse(session.peer_id, why, now, about=session.opened)

    # -- messages --------------------------------------------------------------------------------------------------

    def _open(self, peer: Peer, message: OpenSession, now: float) -> Answer:
        in_flight, was_idle = self._in_flight is not None, all(one.finished for one in self.sessions.values())
        before = self.sessions.get(message.session_id)
        opened = self.register.open(peer, message, now, num_rounds=self.num_rounds, in_flight=in_flight)
        if isinstance(opened, Rejection):
            return opened
        if was_idle:
            self.model_drafts.begin(now)
        self.promises.opened(opened, before)
        is_kept = opened.session_id not in self.register.released
        self.preemption.opened(opened, before, self.sessions, now, kept=is_kept)
        return repeat(opened, len(message.prompt) + len(message.committed))

    def _hear(self, peer: Peer, message: Draft | Ack, now: float) -> Answer:
        session = self.register.find(peer, message, now)
        if isinstance(session, Rejection):
            return session
        if isinstance(message, Draft):
            return take_draft(session, message, self.welcome, self.round_s, now)
        return take_ack(session, message, self.round_s, now)

    # -- rounds ----------------------------------------------------------------------------------------------------

    def _start(self, sessions: list[Session], ready: list[Session], now: float) -> Round | None:
        planned = self._pack(sessions, ready, now)
        self.counts.num_preempted += len(planned.preempted)
        self.preemption.began(planned, self.sessions, now)
        if not planned.entries:
            if self.promises.promised:  # a prompt whose last token is held waits for time to pass, and nothing else
                self.wake_at = min(self.wake_at, now + max(self.round_s, LEAST_HELD_S))
            return None
        self._taking_part = {entry.session_id: self.sessions[entry.session_id] for entry in planned.entries}
        self.promises.began({entry.session_id: len(entry.tokens) for entry in planned.entries}, ready)
        self.num_rounds = planned.number
        self._in_flight = planned
        prefilled = set(planned.prefilled)
        for entry in planned.entries:
            session = self._taking_part[entry.session_id]
            if session.num_cached is None:
                self.counts.looked_up(len(session.tokens), entry.start)
            session.enter(now, reads_prompt=entry.session_id in prefilled, num_cached=entry.start)
        for session_id in planned.crowded_out:
            self.sessions[session_id].lack_memory(now)
        return planned

    def _pack(self, sessions: list[Session], ready: list[Session], now: float) -> Round:
        """Everybody who is ready; while they go one by one, the first that finds room."""
        number = self.num_rounds + 1
        self._being_planned = ready
        allotment = self._allot(ready, now)
        if self._num_alone:
            for session in sorted(ready, key=lambda session: (session.ready_since, session.admitted)):
                self._being_planned = [session]
                drafted = self.choice.choose([session], now)
                resolve = partial(self.preemption.resolve, now=now, others=ready)
                planned = plan(number, sessions, [session], self.limits, self.pool, drafted, allotment, resolve)
                if planned.entries:
                    return planned
            self._being_planned = ready
        drafted = self.choice.choose(ready, now, _room(allotment, len(ready)))
        resolve = partial(self.preemption.resolve, now=now)
        return plan(number, sessions, ready, self.limits, self.pool, drafted, allotment, resolve)

    def _allot(self, ready: list[Session], now: float) -> Allotment | None:
        """What promises take of the round; without any there is nothing to work out, which could fail."""
        if not self.promises.promised:
            return None
        self._is_allotting = True
        allotment = self.promises.allot(self.sessions, ready, now)
        self._is_allotting = False
        return allotment


def _room(allotment: Allotment | None, num_ready: int) -> int | None:
    """Drafted tokens that promises leave room for beside a token of each session and the promised prompts' own."""
    if allotment is None or allotment.round_tokens is None:
        return None
    return max(0, allotment.round_tokens - num_ready - sum(allotment.prefill.values()))
