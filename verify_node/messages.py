"""Messages on their way from the channel to the core and back.

Sessions with a constraint wait until that is compiled, before the core sees them. It is compiled on a thread, which
drops Python's lock, one at a time: whoever sends many that are costly waits, since senders take turns, and neither the
event loop nor the model's thread does.
"""

import asyncio
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

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
"""Longest look at what arrives: verdicts, other peers' messages and HTTP wait no longer for a burst."""

PAUSE_S = 0.02
"""Between two looks during a round, after one that brought nothing but what is refused, or that left something. In all
looks take a fifth of the time of a round then, whoever sends how much."""

ENDS = (RankLost, TransportError, OutputError, BrokenPipeError, BrokenInvariant)
"""Errors that end this node at once: no later round could compute, hear or tell. (A core that checks its invariants is
of tests.)"""

MAX_WAITING = 256
"""Messages of one sender that wait; one more is refused."""


class Compiling:
    """`take` messages as they come, and give them out by `next` once the core need not compile anything for them."""

    def __init__(self, constraints: Constraints) -> None:
        self._constraints = constraints
        self._waiting: OrderedDict[bytes, deque[_Opening]] = OrderedDict()  # by sender, whose turn it is first
        self._there = asyncio.Event()
        self._newest: _Opening | None = None  # which is compiled now, unless it was forgotten

    def concerns(self, received: Received) -> bool:
        """Returns whether the message opens a session with a constraint that it does not hold yet."""
        message = received.message
        if not isinstance(message, OpenSession) or message.constraint is None:
            return False
        return not self._constraints.holds(message.session_id, message.constraint)

    def take(self, received: Received) -> bool:
        """Has an opening wait that it concerns; returns False where too many of its sender do."""
        message = received.message
        if not isinstance(message, OpenSession) or message.constraint is None:
            raise TypeError(f"{type(message).__name__} has nothing that is compiled")
        queue = self._waiting.setdefault(received.peer, deque())
        if len(queue) >= MAX_WAITING:
            return False
        queue.append(_Opening(received, message.constraint))
        self._there.set()
        return True

    def forget(self, closing: Received) -> None:
        """A Close came: openings of that session by the same sender that wait, or are compiled now, are over.

        Else they would open it afterwards, for nobody.
        """
        if self._newest is not None and _is_closed(self._newest.received, closing):
            self._newest = None
        queue = self._waiting.get(closing.peer, ())
        if left := deque(each for each in queue if not _is_closed(each.received, closing)):
            self._waiting[closing.peer] = left
        else:
            self._waiting.pop(closing.peer, None)

    async def next(self) -> Received:
        """Waits for the next message whose constraint is compiled, or was found to be wrong.

        What came of it is offered: the message is to be handled at once, before anything else is.
        """
        while True:
            self._newest = opening = await self._first()
            if not self.concerns(opening.received):
                return opening.received  # repeated while it waited; its session is open by now
            compiled = await self._compiled(opening)
            if self._newest is not None:
                self._constraints.offer(opening.constraint, compiled)
                return opening.received

    async def _compiled(self, opening: "_Opening") -> Compiled:
        """Compiles on a thread. An unforeseen exception costs this session only."""
        try:
            return await asyncio.to_thread(self._constraints.compiled, opening.constraint)
        except Exception as error:
            logger.exception("a constraint could not be compiled", extra={"peer": opening.received.peer.hex()})
            return ConstraintError(f"compiling it failed ({type(error).__name__}); write it in another way")

    async def _first(self) -> "_Opening":
        """Waits for the message whose turn it is."""
        while not self._waiting:
            self._there.clear()
            await self._there.wait()
        sender, queue = self._waiting.popitem(last=False)
        opening = queue.popleft()
        if queue:
            self._waiting[sender] = queue  # at the end
        return opening


class _Opening(NamedTuple):
    """A message that opens a session, and what is compiled for it."""

    received: Received
    constraint: Constraint


def _is_closed(waiting: Received, closing: Received) -> bool:
    """Returns whether a Close is of the session that waits to be opened, as it is to be opened or later."""
    opened, closed = waiting.message, closing.message
    if not isinstance(opened, OpenSession) or not isinstance(closed, Close):
        return False
    is_same_sender = (waiting.peer, waiting.principal) == (closing.peer, closing.principal)
    return is_same_sender and opened.session_id == closed.session_id and opened.epoch <= closed.epoch


@dataclass
class Messages:
    """Feeds the core with what arrives, and sends what it answers."""

    core: VerifyCore
    channel: VerifyChannel
    recorder: RoundRecorder | None
    compiling: Compiling | None  # None: no constraints are served
    wall: WallTime
    uplink_bytes: int = 0  # of messages that carry drafted tokens
    woken: asyncio.Event = field(default_factory=asyncio.Event)  # something came that the planner should know of
    between_rounds: asyncio.Event = field(default_factory=asyncio.Event)  # no round is in flight

    async def collect(self) -> None:
        """Feeds the core with what arrives, also while a round is in flight."""
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
        """Takes messages for TURN_S. Whether any of it was of use, or ended a session; what is refused is not."""
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
        """Has a message wait for its constraint to be compiled; too many of one sender are refused.

        One by another key than its peer's does not, and takes none of the peer's turns: the core refuses it.
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
        """Opens sessions whose constraints are compiled now, or refuses them."""
        failures = Failures(logger, "a session with a constraint", ENDS)
        while True:
            async with failures.survived():
                self.reply(self._handle(await compiling.next()))
                self.woken.set()

    async def _ignore(self) -> None:
        """Reads nothing for a moment, or until the round is done, if one is in flight: after a refusal or in a burst.

        Nothing that comes is of use before that, and each look takes time from the forward pass.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(PAUSE_S):
                await self.between_rounds.wait()

    def _handle(self, received: Received) -> list[Send]:
        """Answers a message. One that raises an exception costs its session, and nobody else notices."""
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
        peer = self.core.peers.get(received.peer)
        if isinstance(received.message, Leave) and peer is not None:
            logger.info("a draft node left", extra={"client": peer.client.name})
        if isinstance(received.message, Draft):
            self.uplink_bytes += received.num_bytes
        now = time.monotonic()
        sends = self.core.receive(received.peer, received.message, now, received.principal)
        if self.recorder is not None:
            self.recorder.heard(received, self.core, now)
        return sends

    def reply(self, sends: Iterable[Send]) -> None:
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
