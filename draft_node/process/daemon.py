"""The draft node as a process: carries out the actions of `core/core.py` with channels, a draft model and a clock.

The event loop owns the channels and the core; the draft model has its own thread. `generate` is the interface to users:
it takes a request, and yields tokens as they are verified. All decisions are in the core.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import contextmanager

from draft_node.core import actions as act
from draft_node.core.actions import Deliver, Fail, Finish, NodeAction
from draft_node.core.core import DraftCore
from draft_node.core.generation import Generation
from draft_node.core.link import VerifyLink
from draft_node.model.drafting import Drafting
from draft_node.process.connections import Connections, ConnectTo
from goodspeed.drafting.draft_model import DraftModel
from goodspeed.drafting.proposing import Propose, Proposed
from goodspeed.errors import MessageTooLarge, PeerRefused, ProtocolError, TransportError
from goodspeed.serving.loop import Failures
from goodspeed.wire.channels import DraftChannel
from goodspeed.wire.codec import FIXED_BYTES
from goodspeed.wire.handshake import Leave
from goodspeed.wire.messages import Ack, Close, DownMessage, Draft, OpenSession, Redirect, Refusal, UpMessage, Verdict

logger = logging.getLogger("goodspeed.draft")

ENDS = (PeerRefused, TransportError)
"""Errors that end this node: a permanent refusal, or all verify nodes away for too long."""

MAX_NAMED = 4
"""Most verify nodes that the error message "none answers" names."""

TICK_S = 0.1
"""Seconds between checks for silence and retransmissions."""


class DraftDaemon:
    """Serves sessions until cancelled; run `serve` concurrently with `generate` calls."""

    def __init__(
        self,
        drafting: Drafting | None,
        channel: DraftChannel,
        core: DraftCore,
        connect: ConnectTo | None = None,
    ) -> None:
        """drafting: None: no draft model. channel: of link 0.

        connect: creates a channel to another verify node; None: there is no other.
        """
        self.drafting = drafting
        self.core = core
        self.connections = Connections(channel, connect, self._handle, self._not_sent, self._unreachable)
        self.connected = asyncio.Event()
        self._outboxes: dict[bytes, asyncio.Queue[Deliver | Finish | Fail]] = {}  # of running `generate` calls

    # -- for users -------------------------------------------------------------------------------------------------

    async def generate(self, request: Generation) -> AsyncGenerator[Deliver | Finish | Fail, None]:
        """Yields tokens as they are verified, then Finish or Fail.

        May wait for a place first (`core/request_queue.py`). Leaving the iteration early closes the session at both
        nodes.
        """
        outbox = self._outboxes[request.session_id] = asyncio.Queue()
        try:
            self._carry_out(self.core.begin(request, time.monotonic()))
            while True:
                item = await outbox.get()
                yield item
                if not isinstance(item, Deliver):
                    return
        finally:
            if self.drafting is not None:
                self.drafting.forget(request.session_id)
            self._carry_out(self.core.forget(request.session_id, time.monotonic()))
            del self._outboxes[request.session_id]

    async def end_generations(self, fail: Fail) -> None:
        """Closes the running sessions at both nodes; their users and all later ones get `fail`."""
        self._carry_out(self.core.drain(fail))

    @property
    def drafter(self) -> DraftModel | None:
        """The draft model; None: the node has none."""
        return None if self.drafting is None else self.drafting.drafter

    @property
    def channel(self) -> DraftChannel:
        return self.connections.channel(self.core.links.home)

    @property
    def link(self) -> VerifyLink:
        """The home link, on which new sessions are opened."""
        return self.core.link

    # -- the process -----------------------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Serves until cancelled. Raises PeerRefused or TransportError for a failure that ends the node (`ENDS`)."""
        why = Fail("closed", "this draft node is shutting down")
        try:
            async with asyncio.TaskGroup() as tasks:
                self.connections.begin(tasks)
                if self.drafting is not None:
                    tasks.create_task(self._draft(self.drafting))
                tasks.create_task(Failures(logger, "a look around", ENDS).repeat(self._look_around, TICK_S))
        except* (PeerRefused, TransportError) as group:
            why = Fail("verify_away", self.link.absence(time.monotonic()))
            raise group.exceptions[0] from None
        finally:
            self.connections.clear()  # Leave ends all sessions: queued messages are not needed
            self._carry_out(self.core.leave(why))
            await self.connections.flush()
            if self.drafting is not None:
                self.drafting.close()
            self.connections.close()

    def _handle(self, link: int, message: DownMessage | ProtocolError) -> None:
        if isinstance(message, ProtocolError):
            logger.warning("the verify node sent an invalid message", extra={"why": message})
            return
        with self._of(message.session_id if isinstance(message, Redirect | Verdict | Refusal) else None):
            self._carry_out(self.core.receive(message, time.monotonic(), link))
        if isinstance(message, Refusal) and message.session_id is None:
            extra = {"code": message.code, "what": message.what, "what_to_do": message.what_to_do}
            logger.info("the verify node refused", extra=extra)

    def _look_around(self) -> None:
        """Checks connections and advances the core's time."""
        now = time.monotonic()
        for link, channel in self.connections.all():
            self._look_at(link, channel, now)
        self._carry_out(self.core.tick(now))

    def _look_at(self, link: int, channel: DraftChannel, now: float) -> None:
        if why := channel.transport.failure():
            extra = {"why": why, "at": channel.endpoint}
            logger.info("the verify node refuses this node; trying again", extra=extra)
            self._carry_out(self.core.turned_away(why, now, link))
        if channel.transport.broke():
            for message in channel.receive_ready():  # messages that arrived before the connection ended
                self._handle(link, message)
            self._carry_out(self.core.broke(now, link))

    def _unreachable(self, link: int, why: Exception) -> None:
        """Handles a sibling verify node to which no channel could be created."""
        logger.warning("a verify node cannot be connected to", extra={"why": why})
        self.core.unreachable(link)

    async def _draft(self, drafting: Drafting) -> None:
        while True:
            for proposed in await drafting.take():
                with self._of(proposed.session_id):
                    self._carry_out(self.core.proposed(proposed, time.monotonic()))

    @contextmanager
    def _of(self, session_id: bytes | None) -> Iterator[None]:
        """Context of one event: logs an exception, and fails only the session of the event. None: no session."""
        try:
            yield
        except ENDS:
            raise
        except Exception as error:
            logger.exception("an event failed", extra={"session": session_id.hex() if session_id else None})
            if session_id is not None:
                why = Fail("failed", f"this draft node failed on this text: {type(error).__name__}; see its log")
                self._carry_out(self.core.fail(session_id, why))

    # -- actions ---------------------------------------------------------------------------------------------------

    def _carry_out(self, actions: Iterable[NodeAction]) -> None:
        for action in actions:
            match action:
                case act.Send():
                    self.connections.put(action.link, action.message)
                case act.Connect():
                    logger.info("trying another verify node", extra={"at": action.address.endpoint})
                    self.connections.connect(action.link, action.address)
                case act.Disconnect():
                    self.connections.disconnect(action.link)
                case act.Reconnect():
                    self.connections.reconnect(action.link)
                case act.Tell():
                    if (outbox := self._outboxes.get(action.session_id)) is not None:
                        outbox.put_nowait(action.item)
                case Propose():
                    self._propose(action)
                case act.Connected():
                    self._connected(action)
                case act.Away():
                    logger.info("the verify node is away", extra={"num_running": self.core.queue.num_running})
                    self.connected.clear()
                case act.EndTexts():
                    extra = {"num_texts": action.num_texts, "why": self._absence}
                    logger.warning("the verify node stays away: ending the texts that wait for it", extra=extra)
                case act.GiveUp():
                    raise TransportError(self._absence)

    def _propose(self, wanted: Propose) -> None:
        now = time.monotonic()
        if self.drafting is None:
            answer: Proposed | None = Proposed(wanted.request.session_id, wanted.epoch, wanted.round, ())
        else:
            answer = self.drafting.want(wanted, now)
        if answer is not None:
            self._carry_out(self.core.proposed(answer, now))

    def _connected(self, action: act.Connected) -> None:
        self.connections.channel(action.link).max_send_bytes = action.welcome.max_message_bytes
        if self.drafter is not None:
            welcomes = [action.welcome, *self.core.links.welcomes]
            self.drafter.max_proposal_bytes = min(one.max_message_bytes for one in welcomes) - FIXED_BYTES
            self.drafter.vocab_size = min(one.vocab_size for one in welcomes)
        extra = {"at": self.connections.channel(action.link).endpoint, "num_running": self.core.queue.num_running}
        logger.info("the verify node is there", extra=extra)
        self.connected.set()

    @property
    def _absence(self) -> str:
        endpoints = [address.endpoint for address in self.core.links.verify_nodes.addresses()]
        where = self.channel.endpoint if len(endpoints) == 1 else ", ".join(endpoints[:MAX_NAMED])
        return self.link.absence_at(where, self.core.connect_timeout_s, self.core.links.trouble)

    def _not_sent(self, link: int, message: UpMessage, error: MessageTooLarge | TransportError) -> None:
        if isinstance(error, MessageTooLarge):
            if not isinstance(message, OpenSession | Draft | Ack | Close):
                raise error
            self._carry_out(self.core.too_large(message.session_id, Fail("too_large", str(error))))
            return
        if not isinstance(message, Leave):
            logger.info("a message could not be sent", extra={"why": error})
        self._carry_out(self.core.send_failed(time.monotonic(), link))
