"""Passes messages from the channel to the core and back.

Sessions with a constraint wait until the constraint is compiled, before the core sees them. Constraints are compiled
one at a time, on a thread that releases the GIL, so neither the event loop nor the model's thread waits. Senders take
turns: many costly constraints delay only their sender.
"""

import asyncio
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from goodspeed.constraint.compiling import Compiled, Constraints
from goodspeed.errors import ConstraintError, OutputError, ProtocolError, RankLost, TransportError
from goodspeed.serving.loop import Failures
from goodspeed.wire.generation import Constraint
from goodspeed.wire.handshake import Leave
from goodspeed.wire.messages import Close, Draft, OpenSession
from goodspeed.wire.zmq.transport import Delivery, Received, VerifyChannel
from verify_node.core.core import VerifyCore
from verify_node.core.replies import Send
from verify_node.session.phase import BrokenInvariant
from verify_node.watch.recorder import RoundRecorder
from verify_node.watch.round_events import WallTime

logger = logging.getLogger("goodspeed.verify")

TURN_S = 0.005
"""Longest time for reading arrivals, in seconds, so that a burst does not delay verdicts, other peers and HTTP."""

PAUSE_S = 0.02
"""Pause between two reads during a round, in seconds, after a read with only refused messages or with more pending. So
reads take at most a fifth of a round's time, whatever is sent."""

ENDS = (RankLost, TransportError, OutputError, BrokenPipeError, BrokenInvariant)
"""Errors that end this node at once: no later round could compute, receive or report. (Only tests use a core that
checks its invariants.)"""

MAX_WAITING = 256
"""Most waiting messages per sender; further ones are refused."""


class Compiling:
    """Queues messages by `take`, and returns each by `next` once its constraint is compiled."""

    def __init__(self, constraints: Constraints) -> None:
        self._constraints = constraints
        self._waiting: OrderedDict[bytes, deque[Received]] = OrderedDict()  # by sender, the next turn first
        self._there = asyncio.Event()
        self._newest: Received | None = None  # the one being compiled; None once its session was closed

    def concerns(self, received: Received) -> bool:
        """True if the message opens a session with a constraint that the session does not hold yet."""
        message = received.message
        if not isinstance(message, OpenSession) or message.constraint is None:
            return False
        return not self._constraints.holds(message.session_id, message.constraint)

    def take(self, received: Received) -> bool:
        """Queues a message for which `concerns` is true; returns False if its sender has too many waiting."""
        queue = self._waiting.setdefault(received.peer, deque())
        if len(queue) >= MAX_WAITING:
            return False
        queue.append(received)
        self._there.set()
        return True

    def forget(self, closing: Received) -> None:
        """Handles a Close: discards the sender's openings of that session that wait or are being compiled.

        Otherwise they would open an abandoned session later.
        """
        if self._newest is not None and _is_closed(self._newest, closing):
            self._newest = None
        queue = self._waiting.get(closing.peer, ())
        if left := deque(each for each in queue if not _is_closed(each, closing)):
            self._waiting[closing.peer] = left
        else:
            self._waiting.pop(closing.peer, None)

    async def next(self) -> Received:
        """Waits for the next message whose constraint is compiled, or was found to be invalid.

        The result is offered to the core: the message must be handled at once, before any other.
        """
        while True:
            self._newest = opening = await self._first()
            constraint = opening.message.constraint if isinstance(opening.message, OpenSession) else None
            if constraint is None or not self.concerns(opening):
                return opening  # a repeated message; its session is open by now
            compiled = await self._compiled(constraint, opening.peer)
            if self._newest is not None:
                self._constraints.offer(constraint, compiled)
                return opening

    async def _compiled(self, constraint: Constraint, peer: bytes) -> Compiled:
        """Compiles on a thread. An unexpected exception affects only this session."""
        try:
            return await asyncio.to_thread(self._constraints.compiled, constraint)
        except Exception as error:
            logger.exception("a constraint could not be compiled", extra={"peer": peer.hex()})
            return ConstraintError(f"compiling it failed ({type(error).__name__}); write it in another way")

    async def _first(self) -> Received:
        """Waits for the message whose turn it is."""
        while not self._waiting:
            self._there.clear()
            await self._there.wait()
        sender, queue = self._waiting.popitem(last=False)
        opening = queue.popleft()
        if queue:
            self._waiting[sender] = queue  # at the end
        return opening


def _is_closed(waiting: Received, closing: Received) -> bool:
    """True if a Close is for the waiting session, in its epoch or a later one."""
    opened, closed = waiting.message, closing.message
    if not isinstance(opened, OpenSession) or not isinstance(closed, Close):
        return False
    is_same_sender = (waiting.peer, waiting.principal) == (closing.peer, closing.principal)
    return is_same_sender and opened.session_id == closed.session_id and opened.epoch <= closed.epoch


@dataclass
class Messages:
    """Passes arriving messages to the core, and sends its replies."""

    core: VerifyCore
    channel: VerifyChannel
    recorder: RoundRecorder | None
    compiling: Compiling | None  # None: no constraints are served
    wall: WallTime
    uplink_bytes: int = 0  # of messages with drafts
    woken: asyncio.Event = field(default_factory=asyncio.Event)  # an event that may let the planner start a round
    between_rounds: asyncio.Event = field(default_factory=asyncio.Event)  # no round is in flight

    async def collect(self) -> None:
        """Passes arriving messages to the core, also while a round is in flight."""
        failures = Failures(logger, "a look at what arrives", ENDS)
        while True:
            async with failures.survived():
                await self.channel.readable()
                heard = self.hear(self.channel.arriving())
                if heard:
                    self.woken.set()
                if self.channel.has_more or (self.channel.emptied and not heard):
                    await self._ignore()

    def hear(self, messages: Iterable[Received]) -> bool:
        """Handles messages for at most TURN_S. True if any message was accepted, or a session was opened or ended."""
        changed, num_sessions = False, len(self.core.sessions)
        until = time.monotonic() + TURN_S
        for received in messages:
            num_unheeded = self.core.replies.num_unheeded
            if not self._waits(received):
                self.reply(self._handle(received))
                changed |= self.core.replies.num_unheeded == num_unheeded
            if time.monotonic() >= until:
                break
        return changed or len(self.core.sessions) != num_sessions

    def _waits(self, received: Received) -> bool:
        """Queues a message whose constraint must be compiled; refuses it if its sender has too many waiting.

        A message with another key than its peer's is not queued, nor takes the peer's turns: the core refuses it.
        """
        if self.compiling is not None and isinstance(received.message, Close):
            self.compiling.forget(received)
        peer = self.core.peers.get(received.peer)
        is_known = peer is not None and peer.principal == received.principal
        if self.compiling is None or not is_known or not self.compiling.concerns(received):
            return False
        if not self.compiling.take(received):
            error = ProtocolError("too many sessions wait for their constraints to be compiled; open fewer at once")
            self.reply(self.core.reject(received.peer, error, time.monotonic(), received.principal))
        return True

    async def open_compiled(self, compiling: Compiling) -> None:
        """Opens, or refuses, sessions whose constraints are compiled."""
        failures = Failures(logger, "a session with a constraint", ENDS)
        while True:
            async with failures.survived():
                self.reply(self._handle(await compiling.next()))
                self.woken.set()

    async def _ignore(self) -> None:
        """Pauses reading, after refusals or in a burst, for PAUSE_S or until the round in flight is done.

        Messages cannot be used before that, and each read takes time from the forward pass.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(PAUSE_S):
                await self.between_rounds.wait()

    def _handle(self, received: Received) -> list[Send]:
        """Returns the replies to a message. A message that raises an exception affects only its own session."""
        peer_id, message, now = received.peer, received.message, time.monotonic()
        try:
            self.core.count_bytes(peer_id, uplink=received.num_bytes)
            if isinstance(message, ProtocolError):
                extra = {"peer": peer_id.hex(), "why": message, "num_bytes": received.num_bytes}
                logger.warning("refused a message", extra=extra)
                return self.core.reject(peer_id, message, now, received.principal)
            if isinstance(message, Leave) and (peer := self.core.peers.get(peer_id)) is not None:
                logger.info("a draft node left", extra={"client": peer.client.name})
            if isinstance(message, Draft):
                self.uplink_bytes += received.num_bytes
            sends = self.core.receive(peer_id, message, now, received.principal)
            if self.recorder is not None:
                self.recorder.heard(received, self.core, now)
            return sends
        except ENDS:
            raise
        except Exception as error:
            logger.exception("a message failed", extra={"peer": peer_id.hex(), "kind": type(message).__name__})
            return self.core.fail(peer_id, message, type(error).__name__, now)

    def reply(self, sends: Iterable[Send]) -> None:
        """Sends messages over the channel; a receiver asks again for an undelivered message."""
        started = time.perf_counter()
        traffic = self.channel.traffic
        for send in sends:
            num_before = traffic.bytes_sent
            try:
                delivery = self.channel.send(send.peer_id, send.message)
            except TransportError:
                raise
            except Exception:  # for example, the message is too large
                extra = {"peer": send.peer_id.hex(), "kind": type(send.message).__name__}
                logger.exception("a message could not be sent", extra=extra)
                continue
            if delivery is not Delivery.SENT:
                extra = {"peer": send.peer_id.hex(), "kind": type(send.message).__name__, "why": delivery.value}
                logger.info("a message was not delivered", extra=extra)
            else:
                self.core.count_bytes(send.peer_id, downlink=traffic.bytes_sent - num_before)
        self.wall.send += time.perf_counter() - started
