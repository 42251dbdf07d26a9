"""Joins the core, the target and the channel: the verify node as a process.

The event loop owns the channel and the core. The model has its own thread, so heartbeats are answered during a long
forward pass. `core.py` has all rules; this module has only the loop and its clock.
"""

import asyncio
import logging
import time
from collections.abc import Coroutine, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from goodspeed.fleet.replicas import by_clock
from goodspeed.serving.events import QUIET, EventLog, Reporter
from goodspeed.serving.loop import Failures, ModelThread, wait_at_most
from goodspeed.wire.channels import VerifyChannel
from goodspeed.wire.messages import Verdict
from verify_node.core.core import VerifyCore
from verify_node.core.replies import Send
from verify_node.model.target import RoundResult, Target
from verify_node.process.enrolment import Enrolment
from verify_node.process.fleet_member import PEERS_LOOK_S, Member
from verify_node.process.message_loop import ENDS, MessageLoop
from verify_node.scheduler.round import Round
from verify_node.watch.recorder import RoundRecorder
from verify_node.watch.round_events import round_event
from verify_node.watch.status_lines import status_line

if TYPE_CHECKING:  # imports transformers' models
    from goodspeed.engine.torch.tensor_parallel.ranks import Ranks

logger = logging.getLogger("goodspeed.verify")

LOOK_S = 1.0
"""Seconds between two checks of the enrolment folder, or a heartbeat if that is less."""

TICK_S = 0.25
"""Seconds between two checks of the leases, or a heartbeat if that is less: how soon a loss is noticed."""

LEAST_WAIT_S = 0.0005
"""Least time between two attempts to plan a round, in seconds, unless a message arrives."""

HANGING_S = 5.0
"""Longest wait of a stopping node for a forward pass over several ranks, in seconds; one of them may be lost."""


@dataclass
class VerifyDaemon:
    """Runs until cancelled, and then notifies the draft nodes."""

    core: VerifyCore
    target: Target
    channel: VerifyChannel
    events: EventLog
    recorder: RoundRecorder | None = None
    enrolment: Enrolment | None = None  # None: the wire has no keys
    reporter: Reporter = QUIET
    ranks: "Ranks | None" = None  # None: the model is not split
    member: Member | None = None  # None: not part of a fleet
    _failed_decisions: Failures = field(default_factory=lambda: Failures(logger, "a decision on promises", ENDS))
    _work_s: float = 0.0  # of scheduling and sending for the next round, since the pass of the newest one
    _lapped: float = 0.0  # end of the newest phase, by `time.perf_counter`
    messages: MessageLoop = field(init=False)
    _thread: ModelThread = field(default_factory=ModelThread)

    def __post_init__(self) -> None:
        self.messages = MessageLoop(self.core, self.channel, self.recorder)
        self.messages.between_rounds.set()
        self.channel.transport.bar(self.core.rate_limiter.barred)
        if self.enrolment is not None:
            self.core.enrol(self.enrolment.enrolled, time.monotonic())
            self.enrolment.barred = self.core.rate_limiter.barred
            self.enrolment.on_change = self._enrol
            self.enrolment.say = lambda sentences: self.reporter.say_all(sentences)
            self.enrolment.on_refused = lambda key: self.core.replies.turned_away(key, time.monotonic())

    async def serve(self) -> None:
        """Receives messages and runs rounds until cancelled; then finishes the round in flight and notifies peers."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for loop in self._loops():
                    tasks.create_task(loop)
                rounds = tasks.create_task(self._rounds())
                try:
                    await asyncio.wait([rounds])  # a cancellation does not cancel the rounds
                finally:
                    await self._drain(rounds)
        finally:
            if self.ranks is None:
                self._thread.close()
            else:
                self._thread.close(HANGING_S)
                self.ranks.close()
            self.channel.close()

    def _loops(self) -> Iterator[Coroutine[None, None, None]]:
        """Yields the tasks other than the rounds."""
        heartbeat_s = self.core.welcome.heartbeat_s
        yield self.messages.collect()
        yield Failures(logger, "a look at the clock", ENDS).repeat(self._tick, min(heartbeat_s, TICK_S))
        if (enrolment := self.enrolment) is not None:
            looks = Failures(logger, "a look at the enrolment", ENDS)
            yield looks.repeat(lambda: enrolment.look(), min(heartbeat_s, LOOK_S))
        if self.ranks is not None:
            yield self._look_after(self.ranks)
        if self.member is not None:
            looks = Failures(logger, "a look at the fleet", ENDS)
            yield looks.repeat(partial(self._take_part_in, self.member), PEERS_LOOK_S)
        if (constraints := self.core.sessions.constraints) is not None:
            yield self.messages.compile(constraints)

    async def _drain(self, rounds: "asyncio.Task[None]") -> None:
        """Admits no session and starts no round; draft nodes are notified at once, instead of noticing the silence."""
        num_unfinished = sum(not session.finished for session in self.core.sessions.values())
        is_continued = self.core.fleet.can_take_over(time.monotonic())
        whose = (
            " (other replicas continue those they have room for)" if is_continued else " (their draft nodes keep them)"
        )
        self.reporter.say("stopping; unfinished texts: %d%s", num_unfinished, whose if num_unfinished else "")
        self.core.drain()
        self.messages.woken.set()
        try:
            await asyncio.wait([rounds])
        finally:
            self.messages.reply(self.core.farewell(time.monotonic()))

    async def _rounds(self) -> None:
        """Runs rounds until the node stops. Reports a failed round and repeats it; too many in a row end the node."""
        failures = Failures(logger, "a round", ENDS)
        self._lap()
        while not self.core.draining:
            async with failures.survived(self._abort):
                await self._round()

    async def _round(self) -> None:
        """Runs a round: receive, plan, forward, verify, observe, allocate, reply."""
        planned = await self._next_round()
        if planned is None:
            return
        started = time.monotonic()
        self.messages.between_rounds.clear()
        try:
            result = await self._thread.run(partial(self.target.run, planned))
        finally:
            self.messages.between_rounds.set()
        duration_s = time.monotonic() - started  # with the hand-over between threads
        wall, verify_s = self.core.counts.wall, result.verify_s + result.drafting.seconds
        wall.forward += self._lap() - verify_s
        wall.verify += verify_s
        self.messages.hear(self.channel.arriving())  # so that this round's verdicts reflect the queued messages
        hearing_s = self._lap()
        wall.schedule += hearing_s
        sends = self.core.rounds.finish(
            result.outcomes,
            duration_s,
            time.monotonic(),
            result.drafting,
            result.computed,
            work_s=self._work_s + hearing_s,
        )
        self._work_s = self._lap()
        wall.schedule += self._work_s
        finished = time.monotonic()
        self.messages.reply(sends)
        self._report(planned, result, sends, started, finished)
        sending_s = self._lap()
        wall.send += sending_s
        self._work_s += sending_s

    def _lap(self) -> float:
        """Ends a phase of the loop of rounds; returns its seconds."""
        began, self._lapped = self._lapped, time.perf_counter()
        return self._lapped - began

    def _abort(self, error: Exception) -> dict[str, object]:
        """Makes the sessions of a failed round consistent; the next rounds find the session at fault."""
        failed: dict[str, object] = {
            "round": self.core.rounds.newest_number,
            "num_entries": len(self.core.rounds.isolation.sessions),
        }
        self.target.recover()
        self.messages.reply(self.core.rounds.abort(type(error).__name__, time.monotonic()))
        return failed

    async def _next_round(self) -> Round | None:
        """Waits until a round is planned; None when the node stops."""
        wall = self.core.counts.wall
        while not self.core.draining:
            wall.receive += self._lap()
            async with self._failed_decisions.survived(self._withdraw):
                self.messages.reply(self.core.admit(time.monotonic()))
            planned = self.core.plan(time.monotonic())
            planning_s = self._lap()
            wall.schedule += planning_s
            if planned is not None:
                self._work_s += planning_s  # an attempt in vain holds up no round
                return planned
            self.messages.woken.clear()
            await wait_at_most(max(self.core.wake_at - time.monotonic(), LEAST_WAIT_S), self.messages.woken)
        return None

    def _withdraw(self, _: Exception) -> dict[str, object]:
        """Ends all promises after a failed decision; sessions continue as best effort, and are told so."""
        num_promises = len(self.core.promises.promised)
        self.messages.reply(self.core.admission.withdraw(time.monotonic()))
        return {"num_promises": num_promises}

    def _report(self, done: Round, result: RoundResult, sends: Iterable[Send], started: float, finished: float) -> None:
        """Reports a finished round to `--json`, and to the recording."""
        verdicts = [send.message for send in sends if isinstance(send.message, Verdict)]
        if self.events.enabled:
            fields, wall_s = round_event(done, verdicts, self.core.sessions), vars(self.core.counts.wall)
            self.events.write("round", wall_s=wall_s, uplink_bytes=self.messages.uplink_bytes, **fields)
        if self.recorder is not None:
            self.recorder.finished(done, result.outcomes, verdicts, self.core.sessions, started, finished)

    def _tick(self) -> None:
        """Advances the core's time, and reports lost clients and other news of clients."""
        self.messages.woken.set()
        now = time.monotonic()
        self.messages.reply(self.core.tick(now))
        for lost in self.core.client_events.losses_since(now):
            extra = {"client": lost.client, "lease_s": self.core.welcome.lease_s}
            logger.info("a draft node was lost", extra=extra)
        self.reporter.say_all(map(status_line, self.core.client_events.take_news()))

    async def _look_after(self, ranks: "Ranks") -> None:
        """Ends this node with an error when a process with a part of the model is lost."""
        while True:
            ranks.check()
            await asyncio.sleep(TICK_S)

    def _take_part_in(self, fleet: Member) -> None:
        """Reports this node's load to the fleet, and passes changes among the replicas to the core."""
        now = time.monotonic()
        if (replicas := fleet.look(self.core.load(now))) is not None:
            self.messages.reply(self.core.fleet.know(fleet.name, by_clock(replicas, now - time.time()), now))

    def _enrol(self) -> None:
        """Applies a changed enrolment: ends the sessions of removed keys, then notifies their draft nodes."""
        if self.enrolment is not None:
            self.messages.reply(self.core.enrol(self.enrolment.enrolled, time.monotonic()))
            self.messages.woken.set()
