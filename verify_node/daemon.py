"""Joins the core, the target and the channel: the verify node as a process.

The event loop owns the channel and the core; the model has a thread of its own, so heartbeats are answered during a
long forward pass. Every rule is in `core.py`; here are only the loop and its clock.
"""

import asyncio
import logging
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from goodspeed.engine.parallel.ranks import Ranks
from goodspeed.errors import OutputError, ProtocolError, RankLost, TransportError
from goodspeed.fleet.replicas import by_clock
from goodspeed.serving.events import EventLog
from goodspeed.serving.failures import Failures
from goodspeed.serving.model_thread import ModelThread
from goodspeed.serving.reporter import QUIET, Reporter
from goodspeed.wire.handshake import Leave
from goodspeed.wire.messages import Close, Draft, Verdict
from goodspeed.wire.zmq.transport import Delivery, Received, VerifyChannel
from verify_node.compiling import Compiling
from verify_node.core.core import VerifyCore
from verify_node.core.replies import Send
from verify_node.enrolment import Enrolment
from verify_node.member import PEERS_LOOK_S, Member
from verify_node.model.target import RoundResult, Target
from verify_node.scheduler.round import Round
from verify_node.session.phase import BrokenInvariant
from verify_node.watch.recorder import RoundRecorder
from verify_node.watch.round_events import WallTime, round_event
from verify_node.watch.visits import Visits

logger = logging.getLogger("goodspeed.verify")

LOOK_S = 1.0
"""How often the enrolment folder is looked at, or with every heartbeat if that is more often."""

TICK_S = 0.25
"""How often leases are looked at, or with every heartbeat if that is more often: that soon a loss is noticed."""

TURN_S = 0.005
"""How long one look at what arrives may take: verdicts, other peers' messages and HTTP wait no longer for a burst."""

PAUSE_S = 0.02
"""Between two looks during a round, after one that brought nothing but what is refused, or that left something. In all
looks take a fifth of the time of a round then, whoever sends how much."""

HANGING_S = 5.0
"""How long the end of this node waits for a forward pass of several ranks, of which one may be lost."""

ENDS = (RankLost, TransportError, OutputError, BrokenPipeError, BrokenInvariant)
"""What ends this node at once: it cannot compute, hear or tell any more, and no later round could. (A core that checks
its invariants is of tests.)"""


@dataclass
class VerifyDaemon:
    """Runs until cancelled, and then says so to the draft nodes."""

    core: VerifyCore
    target: Target
    channel: VerifyChannel
    events: EventLog
    recorder: RoundRecorder | None = None
    enrolment: Enrolment | None = None  # None: the wire has no keys
    reporter: Reporter = QUIET
    ranks: Ranks | None = None  # None: the model is not split
    member: Member | None = None  # None: no replica of a fleet
    compiling: Compiling | None = None  # None: no constraints are served
    wall: WallTime = field(default_factory=WallTime)
    uplink_bytes: int = 0  # of messages that carry drafted tokens
    _failed_decisions: Failures = field(default_factory=lambda: Failures(logger, "a decision on promises", ENDS))
    _woken: asyncio.Event = field(default_factory=asyncio.Event)
    _between: asyncio.Event = field(default_factory=asyncio.Event)  # no round is in flight
    _thread: ModelThread = field(default_factory=ModelThread)

    def __post_init__(self) -> None:
        self._between.set()
        self.channel.bar(self.core.rate_limiter.barred)
        if self.enrolment is not None:
            self.core.enrol(self.enrolment.enrolled, time.monotonic())
            self.enrolment.barred = self.core.rate_limiter.barred
            self.enrolment.on_change = self._enrol
            self.enrolment.on_refused = self._turned_away

    async def serve(self) -> None:
        """Collects and runs rounds until cancelled; then the round in flight ends, and everybody is told."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._collect())
                tasks.create_task(self._heartbeat())
                if self.enrolment is not None:
                    tasks.create_task(self._look_at(self.enrolment))
                if self.ranks is not None:
                    tasks.create_task(self._look_after(self.ranks))
                if self.member is not None:
                    tasks.create_task(self._take_part_in(self.member))
                if self.compiling is not None:
                    tasks.create_task(self._open_compiled(self.compiling))
                rounds = tasks.create_task(self._rounds())
                try:
                    await asyncio.wait([rounds])  # which leaves them alone when we are cancelled
                finally:
                    await self._drain(rounds)
        finally:
            if self.ranks is None:
                self._thread.close()
            else:
                self._thread.close(HANGING_S)
                self.ranks.close()
            self.channel.close()

    async def _drain(self, rounds: "asyncio.Task[None]") -> None:
        """Lets nobody in, and starts no round; draft nodes learn at once, and not from silence."""
        num_unfinished = sum(not session.finished for session in self.core.view.sessions.values())
        texts = "1 unfinished text stays with its draft node" if num_unfinished == 1 else None
        self.reporter.say("stopping; %s", texts or f"{num_unfinished} unfinished texts stay with their draft nodes")
        self.core.drain()
        self._woken.set()
        try:
            await asyncio.wait([rounds])
        finally:
            self._reply(self.core.farewell(time.monotonic()))

    async def _rounds(self) -> None:
        """Makes rounds until the node stops. One that fails is told and made again; too many in a row end the node."""
        failures = Failures(logger, "a round", ENDS)
        while not self.core.draining:
            async with failures.survived(self._abort):
                await self._round()

    async def _round(self) -> None:
        """The way of a round: collect, plan, forward, verify, observe, allocate, reply."""
        planned = await self._next_round()
        if planned is None:
            return
        started = time.monotonic()
        result = await self._forward_and_verify(planned)
        duration_s = time.monotonic() - started
        self._hear(self.channel.arriving())  # what waited, so that this round's verdicts know of it
        sends = self._finish(result, duration_s)
        finished = time.monotonic()
        self._reply(sends)
        self._report(planned, result, sends, started, finished)

    def _abort(self, error: Exception) -> dict[str, object]:
        """A round failed, wherever that was: its sessions are made consistent, and the next round finds the culprit."""
        failed: dict[str, object] = {"round": self.core.newest_number, "num_entries": len(self.core.failing)}
        self.target.recover()
        self._reply(self.core.abort(type(error).__name__, time.monotonic()))
        return failed

    async def _forward_and_verify(self, planned: Round) -> RoundResult:
        """The round on the model thread."""
        self._between.clear()
        try:
            return await self._thread.run(partial(self.target.run, planned))
        finally:
            self._between.set()

    async def _next_round(self) -> Round | None:
        """Waits until the planner has a round; None when the node stops."""
        started = time.perf_counter()
        while not self.core.draining:
            planning = time.perf_counter()
            async with self._failed_decisions.survived(self._withdraw):
                self._reply(self.core.admit(time.monotonic()))
            planned = self.core.plan(time.monotonic())
            self.wall.schedule += time.perf_counter() - planning
            if planned is not None:
                self.wall.receive += planning - started
                return planned
            await self._wait(self.core.wake_at - time.monotonic())
        return None

    def _withdraw(self, _: Exception) -> dict[str, object]:
        """What is promised could not be decided: everybody is served as well as can be, and told so."""
        num_promises = len(self.core.promises.promised)
        self._reply(self.core.withdraw(time.monotonic()))
        return {"num_promises": num_promises}

    async def _wait(self, timeout_s: float) -> None:
        """Waits until a message arrives, or the core's next moment comes."""
        self._woken.clear()
        try:
            async with asyncio.timeout(max(timeout_s, 0.0005)):
                await self._woken.wait()
        except TimeoutError:
            pass

    def _finish(self, result: RoundResult, duration_s: float) -> list[Send]:
        """The round's duration, hand-over between threads included, is what the cost of the next ones is told from."""
        self.wall.forward += result.forward_s
        self.wall.verify += result.verify_s
        now, scheduling = time.monotonic(), time.perf_counter()
        verdicts = self.core.finish(result.outcomes, duration_s, now)
        self.wall.schedule += time.perf_counter() - scheduling
        return verdicts

    def _report(self, done: Round, result: RoundResult, sends: Iterable[Send], started: float, finished: float) -> None:
        """Reports a finished round to those who watch (`--json`), and to the recording."""
        verdicts = [send.message for send in sends if isinstance(send.message, Verdict)]
        if self.events.enabled:
            fields = round_event(done, verdicts, self.core.view.sessions)
            self.events.write("round", wall_s=vars(self.wall), uplink_bytes=self.uplink_bytes, **fields)
        if self.recorder is not None:
            self.recorder.finished(done, result.outcomes, verdicts, self.core.view.sessions, started, finished)

    def _reply(self, sends: Iterable[Send]) -> None:
        """Gives messages to the channel; what cannot be delivered is asked for again by its receiver."""
        started = time.perf_counter()
        traffic = self.channel.traffic
        for send in sends:
            num_before = traffic.bytes_sent
            try:
                delivery = self.channel.send(send.peer_id, send.message)
            except TransportError:
                raise
            except Exception:  # it is too large, say
                extra = {"peer": send.peer_id.hex(), "kind": type(send.message).__name__}
                logger.exception("a message could not be sent", extra=extra)
                continue
            if delivery is not Delivery.SENT:
                extra = {"peer": send.peer_id.hex(), "kind": type(send.message).__name__, "why": delivery.value}
                logger.info("a message was not delivered", extra=extra)
            else:
                self.core.count_bytes(send.peer_id, downlink=traffic.bytes_sent - num_before)
        self.wall.send += time.perf_counter() - started

    async def _collect(self) -> None:
        """Feeds the core with what arrives, also while a round is in flight."""
        failures = Failures(logger, "a look at what arrives", ENDS)
        while True:
            async with failures.survived():
                await self.channel.readable()
                heard = self._hear(self.channel.arriving())
                if heard:
                    self._woken.set()
                if self.channel.has_more or (self.channel.emptied and not heard):
                    await self._ignore()

    def _hear(self, messages: Iterable[Received]) -> bool:
        """Takes messages for TURN_S. Whether any of it was of use, or ended a session; what is refused is not."""
        changed, num_sessions = False, len(self.core.view.sessions)
        until = time.monotonic() + TURN_S
        for received in messages:
            num_unheeded = self.core.view.num_unheeded
            if not self._waits(received):
                self._reply(self._handle(received))
                changed |= self.core.view.num_unheeded == num_unheeded
            if time.monotonic() >= until:
                break
        return changed or len(self.core.view.sessions) != num_sessions

    def _waits(self, received: Received) -> bool:
        """Whether a message waits for its constraint to be compiled; too many of one sender are refused.

        One by another key than its peer's does not, and takes none of the peer's turns: the core refuses it.
        """
        if self.compiling is not None and isinstance(received.message, Close):
            self.compiling.forget(received)
        peer = self.core.view.peers.get(received.peer)
        is_known = peer is not None and peer.principal == received.principal
        if self.compiling is None or not is_known or not self.compiling.concerns(received):
            return False
        if not self.compiling.take(received):
            error = ProtocolError("too many sessions wait for their constraints to be compiled; open fewer at once")
            self._reply(self.core.reject(received.peer, error, time.monotonic(), received.principal))
        return True

    async def _open_compiled(self, compiling: Compiling) -> None:
        """Opens sessions whose constraints are compiled now, or refuses them."""
        failures = Failures(logger, "a session with a constraint", ENDS)
        while True:
            async with failures.survived():
                self._reply(self._handle(await compiling.next()))
                self._woken.set()

    async def _ignore(self) -> None:
        """Reads nothing for a moment, or until the round is done, if one is in flight: after a refusal or in a burst.

        Nothing that comes is of use before that, and each look takes time from the forward pass.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(PAUSE_S):
                await self._between.wait()

    def _handle(self, received: Received) -> list[Send]:
        """What a message is answered with. One that raises an exception costs its session, and nobody else notices."""
        try:
            return self._received(received)
        except ENDS:
            raise
        except Exception as error:
            kind, why = type(received.message).__name__, type(error).__name__
            logger.exception("a message failed", extra={"peer": received.peer.hex(), "kind": kind})
            return self.core.fail(received.peer, received.message, why, time.monotonic())

    def _received(self, received: Received) -> list[Send]:
        self.core.count_bytes(received.peer, uplink=received.num_bytes)
        if isinstance(received.message, ProtocolError):
            extra = {"peer": received.peer.hex(), "why": received.message, "num_bytes": received.num_bytes}
            logger.warning("refused a message", extra=extra)
            return self.core.reject(received.peer, received.message, time.monotonic(), received.principal)
        peer = self.core.view.peers.get(received.peer)
        if isinstance(received.message, Leave) and peer is not None:
            logger.info("a draft node left", extra={"client": peer.client.name})
        if isinstance(received.message, Draft):
            self.uplink_bytes += received.num_bytes
        now = time.monotonic()
        sends = self.core.receive(received.peer, received.message, now, received.principal)
        if self.recorder is not None:
            self.recorder.heard(received, self.core.view, now)
        return sends

    async def _heartbeat(self) -> None:
        """Time passes. A look at the clock that fails is told and done again; too many in a row end the node."""
        visits, failures = Visits(self.core.view.diary), Failures(logger, "a look at the clock", ENDS)
        while True:
            async with failures.survived():
                self._tick(visits)
            self._woken.set()
            await asyncio.sleep(min(self.core.welcome.heartbeat_s, TICK_S))

    def _tick(self, visits: Visits) -> None:
        now = time.monotonic()
        self._reply(self.core.tick(now))
        for lost in self.core.view.diary.losses_since(now):
            extra = {"client": lost.client, "lease_s": self.core.welcome.lease_s}
            logger.info("a draft node was lost", extra=extra)
        self.reporter.say_all(visits.news())

    async def _look_at(self, enrolment: Enrolment) -> None:
        """Keys come and go while this node runs."""
        failures = Failures(logger, "a look at the enrolment", ENDS)
        while True:
            await asyncio.sleep(min(self.core.welcome.heartbeat_s, LOOK_S))
            async with failures.survived():
                enrolment.look()

    async def _look_after(self, ranks: Ranks) -> None:
        """Ends this node, by an error, when a process is lost that holds a part of the model."""
        while True:
            ranks.check()
            await asyncio.sleep(TICK_S)

    async def _take_part_in(self, fleet: Member) -> None:
        """Replicas come and go while this node runs; what it has to do itself is told."""
        failures = Failures(logger, "a look at the fleet", ENDS)
        while True:
            now = time.monotonic()
            async with failures.survived():
                if (replicas := fleet.look(self.core.load(now))) is not None:
                    known = by_clock(replicas, now - time.time())
                    self._reply(self.core.know_replicas(fleet.name, known, now))
            await asyncio.sleep(PEERS_LOOK_S)

    def _enrol(self) -> None:
        """The enrolment changed: whose key is gone is told, after its sessions ended."""
        if self.enrolment is not None:
            self._reply(self.core.enrol(self.enrolment.enrolled, time.monotonic()))
            self._woken.set()

    def _turned_away(self, key: str) -> None:
        """A key that is not enrolled got no connection, so there is nobody to send a refusal to."""
        self.core.turned_away(key, time.monotonic())
