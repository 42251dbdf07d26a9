"""Passes messages from the channel to the core and back.

Constraints of open sessions are compiled one at a time, on a thread that releases the GIL, so neither the event loop
nor the model's thread waits. The core takes a session into rounds once its constraint is compiled. Clients take turns:
many costly constraints delay only their client.
"""

import asyncio
import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from goodspeed.constraint.compiling import Compiled, Constraints
from goodspeed.errors import ConstraintError, OutputError, ProtocolError, RankLost, TransportError
from goodspeed.serving.loop import Failures, wait_at_most
from goodspeed.wire.channels import Delivery, Received, VerifyChannel
from goodspeed.wire.generation import Constraint
from goodspeed.wire.handshake import Leave
from goodspeed.wire.messages import Draft, OpenSession, UpMessage
from verify_node.core.core import VerifyCore
from verify_node.core.replies import Send
from verify_node.session.phase import BrokenInvariant
from verify_node.session.session import Session
from verify_node.watch.recorder import RoundRecorder

logger = logging.getLogger("goodspeed.verify")

TURN_S = 0.005
"""Longest time for reading arrivals, in seconds, so that a burst does not delay verdicts, other peers and HTTP."""

PAUSE_S = 0.02
"""Pause between two reads during a round, in seconds, after a read with only refused messages or with more pending. So
reads take at most a fifth of a round's time, whatever is sent."""

ENDS = (RankLost, TransportError, OutputError, BrokenPipeError, BrokenInvariant)
"""Errors that end this node at once: no later round could compute, receive or report. (Only tests use a core that
checks its invariants.)"""


@dataclass
class MessageLoop:
    """Passes arriving messages to the core, and sends its replies."""

    core: VerifyCore
    channel: VerifyChannel
    recorder: RoundRecorder | None
    uplink_bytes: int = 0  # of messages with drafts
    woken: asyncio.Event = field(default_factory=asyncio.Event)  # an event that may let the planner start a round
    opened: asyncio.Event = field(default_factory=asyncio.Event)  # a session may wait for its constraint
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
            self.reply(self._handle(received))
            changed |= self.core.replies.num_unheeded == num_unheeded
            if time.monotonic() >= until:
                break
        return changed or len(self.core.sessions) != num_sessions

    async def compile(self, constraints: Constraints) -> None:
        """Compiles the constraints of open sessions, so that the sessions begin, or are refused."""
        failures = Failures(logger, "a session with a constraint", ENDS)
        while True:
            async with failures.survived():
                asked, constraint = await self._next_to_compile()
                result = await _compiled(constraints, constraint)
                try:
                    sends = self.core.compiled(asked, result, time.monotonic())
                except ENDS:
                    raise
                except Exception as error:
                    peer_id = self.core.sessions.get(asked.session_id, asked).peer_id
                    sends = self._failed(peer_id, asked.opened, error)
                self.reply(sends)
                self.woken.set()

    async def _next_to_compile(self) -> tuple[Session, Constraint]:
        while (session := self.core.sessions.next_to_compile()) is None:
            self.opened.clear()
            await self.opened.wait()
        if session.opened.constraint is None:
            story = session.story.told(session.session_id)
            raise BrokenInvariant(f"session {session.session_id.hex()} has no constraint to compile{story}")
        return session, session.opened.constraint

    async def _ignore(self) -> None:
        """Pauses reading, after refusals or in a burst, for PAUSE_S or until the round in flight is done.

        Messages cannot be used before that, and each read takes time from the forward pass.
        """
        await wait_at_most(PAUSE_S, self.between_rounds)

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
            if isinstance(message, OpenSession):
                self.opened.set()
            if self.recorder is not None:
                self.recorder.heard(received, self.core, now)
            return sends
        except ENDS:
            raise
        except Exception as error:
            return self._failed(peer_id, message, error)

    def _failed(self, peer_id: bytes, message: UpMessage | ProtocolError, error: Exception) -> list[Send]:
        logger.exception("a message failed", extra={"peer": peer_id.hex(), "kind": type(message).__name__})
        return self.core.fail(peer_id, message, type(error).__name__, time.monotonic())

    def reply(self, sends: Iterable[Send]) -> None:
        """Sends messages over the channel; a receiver asks again for an undelivered message."""
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


async def _compiled(constraints: Constraints, constraint: Constraint) -> Compiled:
    """Compiles on a thread. An unexpected exception affects only this constraint's session."""
    try:
        return await asyncio.to_thread(constraints.compiled, constraint)
    except Exception as error:
        logger.exception("a constraint could not be compiled")
        return ConstraintError(f"compiling it failed ({type(error).__name__}); write it in another way")
