"""Rounds of a verify core: plans a round, applies its outcome, and recovers from a failed one.

Between `plan` and `finish` a round is in flight: the target writes the KV cache, and only its thread changes the page
pool. No I/O, no clock, no torch.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from math import inf

from msgspec.structs import replace

from goodspeed.errors import NOT_NUMBERS
from goodspeed.fair.estimators import smoothed
from goodspeed.fair.refined import Refined
from goodspeed.fair.round_time import CONTEXT
from goodspeed.serving.measuring.story import NODE
from verify_node.core.admission import Admission
from verify_node.core.counts import Counts
from verify_node.core.fault_isolation import FaultIsolation, Stage
from verify_node.core.refusals import constraint_failed, target_failed
from verify_node.core.register import Register
from verify_node.core.replies import Replies, Send
from verify_node.core.settings import CoreSettings
from verify_node.scheduler.choose import Choice
from verify_node.scheduler.commit import Moved, commit, publish
from verify_node.scheduler.draft_model_switch import DraftModelSwitch
from verify_node.scheduler.orders import ORDERS
from verify_node.scheduler.pack import plan
from verify_node.scheduler.preempt import Preemption
from verify_node.scheduler.round import NO_DRAFTING, Drafting, Outcome, Round, context_read
from verify_node.scheduler.start import Starting
from verify_node.session.phase import Phase
from verify_node.session.session import SMOOTHING, Session
from verify_node.slo.allotting import NO_PROMISES, Allotment
from verify_node.slo.promises import Promises

IMPOSSIBLE = "the agreement of its draft, or its evidence, has an impossible value"
"""Reason to end a session whose outcome would corrupt the estimates; the rest of the outcome is not trusted, either."""

ROUNDS_KEPT = 64
"""Rounds between two clean-ups of the state of closed sessions."""

LONGER = 2.0
"""Most that the smoothed duration of a round may exceed the newest one, as a multiple: else a round that prefills a
long prompt makes the next twenty wait too long for drafts."""

LEAST_HELD_S = 0.001
"""Least time until a held-back prompt is checked again, in seconds, while the duration of rounds is unknown."""


class Rounds:
    """Runs a register's sessions in one round after another."""

    def __init__(
        self,
        settings: CoreSettings,
        *,
        register: Register,
        choice: Choice,
        cost: Refined,
        admission: Admission,
        replies: Replies,
        counts: Counts,
    ) -> None:
        self.sessions = register.sessions
        self.pool, self.allocator = register.pool, register.allocator
        self.limits, self.cost, self.choice = settings.limits, cost, choice
        self.admission = admission
        self.preemption = Preemption(ORDERS.find(settings.order)(), cost, self.pool)
        self.replies, self.counts = replies, counts
        self.starting = Starting(self.sessions, self.pool, self.limits, cost, is_barrier=settings.is_barrier)
        self.model_switch = DraftModelSwitch(
            settings.is_shared and not settings.is_barrier,
            self._plain_s,
            drafts_first=settings.drafts_first,
            are_near=settings.is_shared,
            has_own=settings.has_draft_model,
        )
        self.num_rounds = 0  # started
        self.round_s = 0.0  # smoothed duration of a round
        self.wake_at = 0.0  # time of the next attempt to plan, unless an event comes before
        self.in_flight: Round | None = None
        self.taking_part: dict[bytes, Session] = {}  # in the round in flight, or else the previous; maybe closed since
        self.isolation = FaultIsolation(register, replies)

    def _plain_s(self, num_sessions: int) -> float:
        """Returns the expected seconds of a round without drafts."""
        return self.cost.round_s(num_sessions, num_sessions, num_sessions * CONTEXT)

    @property
    def newest_number(self) -> int:
        """Number of the round that is being planned, computed or finished."""
        return self.num_rounds + (self.isolation.stage in (Stage.PLANNING, Stage.ALLOTTING))

    @property
    def num_running(self) -> int:
        """Open, unfinished sessions in the newest round; the other unfinished sessions wait."""
        return sum(not one.finished and self.sessions.has(one) for one in self.taking_part.values())

    # -- a round begins --------------------------------------------------------------------------------------------

    @property
    def promises(self) -> Promises:
        """Promises and deadlines of sessions with objectives; a simulation may replace the admission's."""
        return self.admission.promises

    def plan(self, now: float) -> Round | None:
        """Returns the next round if it may start now; else sets `wake_at` to the time of the next attempt."""
        self.wake_at = inf
        if self.in_flight is not None:
            return None
        self.isolation.enter(Stage.PLANNING)
        self.sessions.free_released()
        if self.num_rounds % ROUNDS_KEPT == 0:
            self.choice.keep(self.sessions)
            self.preemption.keep(self.allocator.clients)
        ready = self.starting.look(self.choice, self.num_rounds, self.round_s, now) or ()
        ready = [session for session in ready if not self.promises.awaits_decision(session)]
        self.wake_at = min(self.starting.wake_at, now if self.promises.has_undecided else inf)
        planned = self._start(ready, now) if ready else None
        if planned is None:
            self.isolation.rest()
        return planned

    def _start(self, ready: list[Session], now: float) -> Round | None:
        planned = self._pack(ready, now)
        if self.model_switch.own_may_draft and not self.promises.promised:
            planned = self.choice.request_drafts(planned, self.sessions)
        self.counts.num_preempted += len(planned.preempted)
        self.preemption.began(planned, self.sessions, now)
        if not planned.entries:
            if planned.preempted or not self.starting.prefill.room.rows:
                self.wake_at = now  # preemption freed too little: the victim shares pages with the waiter
            if self.promises.promised:  # a prompt whose final token is held back waits only for its time
                self.wake_at = min(self.wake_at, now + max(self.round_s, LEAST_HELD_S))
            return None
        self.taking_part = {entry.session_id: self.sessions[entry.session_id] for entry in planned.entries}
        self.promises.began({entry.session_id: len(entry.tokens) for entry in planned.entries}, ready)
        self.num_rounds = planned.number
        self.in_flight = planned
        self.sessions.story.note(NODE, "begin a round of sessions", len(planned.entries), None, now)
        self.isolation.enter(Stage.IN_FLIGHT, self.taking_part.values())
        for entry in planned.entries:
            session = self.taking_part[entry.session_id]
            if session.num_cached is None:
                self.counts.looked_up(len(session.tokens), entry.start)
            session.enter(now, is_prefill=entry.num_prefill > 0, num_cached=entry.start)
        crowded_out = frozenset(planned.crowded_out)
        for session_id in (*self.taking_part, *planned.deferred):
            self.sessions[session_id].note_pages(now, lacks=session_id in crowded_out)
        return planned

    def _pack(self, ready: list[Session], now: float) -> Round:
        """Packs all ready sessions; in rounds of one session each, the first that fits."""
        number, room = self.num_rounds + 1, self.starting.prefill.room
        self.isolation.enter(Stage.PLANNING, ready)
        deciding, allotment = self.starting.deciding(ready), self._allot(ready, now)
        pack = partial(plan, number, self.sessions.values(), limits=self.limits, pool=self.pool, allotment=allotment)
        preempted: tuple[bytes, ...] = ()  # for sessions that find too little room all the same
        if self.isolation.num_alone:
            for session in self.isolation.turns(ready):
                self.isolation.enter(Stage.PLANNING, [session])
                drafted = self.choice.choose([session], number, now)
                resolve = partial(self.preemption.resolve, now=now, others=ready)
                planned = pack([session], drafted=drafted, resolve=resolve, room=room)
                preempted += planned.preempted
                if planned.entries:
                    return replace(planned, preempted=preempted)
            self.isolation.enter(Stage.PLANNING, ready)
        most, num_prefill = allotment.room(len(deciding)), self.starting.num_prefill(ready, deciding)
        drafted = self.choice.choose(deciding, number, now, most, num_prefill)
        out = self.preemption.in_vain(self.sessions.values(), ready, drafted, allotment.reserved, now)
        asked = [session for session in ready if session.session_id not in out]
        resolve = partial(self.preemption.resolve, now=now)
        planned = pack(asked, drafted=drafted, resolve=resolve, room=room)
        waiting = tuple(session.session_id for session in ready if session.session_id in out)
        deferred, crowded_out = planned.deferred + waiting, planned.crowded_out + waiting
        return replace(planned, preempted=preempted + planned.preempted, deferred=deferred, crowded_out=crowded_out)

    def _allot(self, ready: list[Session], now: float) -> Allotment:
        """Returns the promises' part of the round."""
        if not self.promises.promised:
            return NO_PROMISES
        self.isolation.enter(Stage.ALLOTTING)
        allotment = self.promises.allot(self.sessions, ready, now)
        self.isolation.enter(Stage.PLANNING)
        return allotment

    # -- a round is done -------------------------------------------------------------------------------------------

    def finish(
        self,
        outcomes: Sequence[Outcome],
        duration_s: float,
        now: float,
        drafting: Drafting = NO_DRAFTING,
        computed: float | None = None,
        work_s: float = 0.0,
    ) -> list[Send]:
        """Finishes the round in flight: commits, observes, permits; returns one Verdict per moved session.

        drafting: by the verify node's own draft model; its seconds are part of duration_s. computed: `Engine.computed`.
        work_s: seconds of the node's own work for the round, since the pass of the one before, without waiting.
        """
        if (done := self.in_flight) is None:
            raise RuntimeError("no round is in flight")
        self.isolation.finish()  # before any call that could fail, and while `abort` would undo the round
        self.in_flight = None
        self.sessions.story.note(NODE, "finish round", done.number, None, now)
        num_rows = done.num_tokens if computed is None else computed
        context = context_read(done.entries, per_row=self.cost.reads_per_row)
        self.cost.observe(num_rows, len(done.entries), context, duration_s - drafting.seconds)
        self.cost.observe_work(work_s, len(self.sessions))
        self.starting.prefill.observe(done, duration_s - drafting.seconds, num_rows - done.num_tokens)
        self.choice.note_drafting(drafting.seconds)
        self.counts.own_s += drafting.seconds
        self.counts.num_own_passes += drafting.num_passes
        self.round_s = smoothed(min(self.round_s, LONGER * duration_s), duration_s, SMOOTHING)
        moved, sends = self._commit(done, outcomes, now)
        sends += self.replies.disprove(moved, now)
        moved = [move for move in moved if self.sessions.has(move.session)]  # without sessions that were just barred
        self.allocator.observe(done.number, moved)
        self.counts.finished(done, moved, duration_s)
        still_open = {key: session for key, session in self.taking_part.items() if self.sessions.has(session)}
        self.preemption.finished(done, moved, still_open, duration_s)
        going_on = [session for session in self.sessions.values() if session.phase is Phase.RUNNING]
        self._compare(done, moved, going_on, now, own_rests=drafting.rests or bool(self.promises.promised))
        sends += self._tell(done, moved, going_on, now)
        self.promises.finished(self.sessions, self.round_s, now)
        self.isolation.succeeded(self.taking_part)
        return sends

    def _commit(self, done: Round, outcomes: Sequence[Outcome], now: float) -> tuple[list[Moved], list[Send]]:
        """Commits the outcomes of sessions still open; returns the moved sessions, and refusals of the failed ones."""
        by_session = {outcome.session_id: outcome for outcome in outcomes}
        moved: list[Moved] = []
        sends: list[Send] = []
        for entry in done.entries:
            session = self.taking_part[entry.session_id]
            if not self.sessions.has(session):
                continue  # closed or reopened meanwhile
            session.advance(now)
            if not entry.samples:
                publish(session, self.pool)
            if not entry.samples and entry.prompt_rows is None:
                continue
            outcome = by_session[entry.session_id]
            session.take_prompt_logprobs(outcome.prompt_logprobs)
            if entry.samples and not outcome.is_possible(len(entry.first_choices)):
                outcome = Outcome(outcome.session_id, (), 0, 0.0, failed=IMPOSSIBLE)
            if outcome.failed:
                if outcome.failed in (NOT_NUMBERS, IMPOSSIBLE):
                    self.pool.withdraw(session.session_id)  # what is cached may have made the target fail
                why = constraint_failed(outcome.failed) if outcome.breaks_constraint else target_failed(outcome.failed)
                sends += self.replies.give_up(session, why, now)
            elif entry.samples:
                passed_over, is_barrier = self.choice.passed_over.get(entry.session_id), self.allocator.is_barrier
                moved.append(commit(session, entry, outcome, self.pool, passed_over, is_barrier=is_barrier))
        return moved, sends

    def _compare(
        self, done: Round, moved: Sequence[Moved], going_on: Sequence[Session], now: float, *, own_rests: bool
    ) -> None:
        """Decides whether draft models may draft until the next round. own_rests: the node's own may not."""
        num_plain = done.num_tokens - done.num_drafted
        context = context_read(done.entries, per_row=self.cost.reads_per_row, drafted=False)
        alone_s = self.cost.model.round_s(num_plain, len(done.entries), context)
        if not (self.model_switch.are_near or self.allocator.is_barrier):
            self.model_switch.weigh_work(self.cost.work_s(len(self.sessions)), self.round_s, len(going_on))
        load = max(len(going_on), len(done.entries))
        self.model_switch.finished(moved, going_on, now, alone_s, load, own_rests=own_rests)
        self.choice.turn_to(self.model_switch.permits, is_trial=self.model_switch.is_trying)

    def _tell(self, done: Round, moved: Sequence[Moved], going_on: Sequence[Session], now: float) -> list[Send]:
        """Makes the verdicts of a round, with each session's permission to draft."""
        permits, owes_more = self.model_switch.nodes_may_draft, self.choice.owes_more
        permitted: Mapping[bytes, int] = {}
        if permits or any(owes_more(move.session) for move in moved):
            permitted = self.allocator.permit(done.number, self.starting.deciding(going_on), self.round_s)
        sends = []
        for move in moved:
            session = move.session
            may_draft = permitted.get(session.session_id, 0) if permits or owes_more(session) else 0
            session.drafts.permit(may_draft, done.number)
            verdict = move.verdict(session.drafts.may_draft, self.choice.least_probability(session))
            waits = self.allocator.waits(session) and done.number >= session.client.retry_round
            session.tell(verdict, now, waits=waits, round_s=self.round_s)
            sends.append(self.replies.tell(session.peer_id, verdict))
        return sends

    # -- a round fails ---------------------------------------------------------------------------------------------

    def abort(self, why: str, now: float) -> list[Send]:
        """Recovers from a round that failed as a whole, in `plan`, in its forward pass (out of memory) or in `finish`.

        The round is repeated: nothing was revealed. If computing the promises' part failed, all promises end, and no
        session. Else `FaultIsolation` looks for the session at fault.
        """
        computed, self.in_flight = self.in_flight, None
        self.counts.num_failed += 1
        self.sessions.story.note(NODE, "abort round", self.newest_number, None, now)
        if self.isolation.stage is Stage.ALLOTTING:
            self.isolation.rest()
            return self.admission.withdraw(now)
        for entry in computed.entries if computed is not None else ():
            if self.sessions.has(self.taking_part[entry.session_id]):
                length = min(entry.start, self.pool.length(entry.session_id))
                if self.pool.truncate(entry.session_id, length) == 0:
                    self.pool.free(entry.session_id)  # so that it has to find room for all of its text
        return self.isolation.failed(why, now)
