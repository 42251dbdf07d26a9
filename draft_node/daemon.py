"""The draft node as a process: carries out, with a channel, a draft model and a clock, what `core/core.py` decides.

The event loop owns the channel and the core; the draft model has a thread of its own. `generate` is what faces users: a
request goes in, deliveries come out as they are verified. No rule is here.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Iterable
from typing import TYPE_CHECKING

from draft_node.core import actions as act
from draft_node.core.actions import Deliver, Fail, Finish, NodeAction, Proposed, Request, Statistics
from draft_node.core.core import DraftCore
from draft_node.core.link import VerifyLink
from draft_node.core.session import Session
from draft_node.outgoing import Outgoing
from draft_node.serve.outboxes import Outboxes
from draft_node.text.history_keeper import HistoryKeeper
from goodspeed.errors import MessageTooLarge, PeerRefused, ProtocolError, TransportError
from goodspeed.wire.codec import FIXED_BYTES
from goodspeed.wire.messages import (
    Ack,
    Close,
    DownMessage,
    Draft,
    Leave,
    Offer,
    OpenSession,
    Refusal,
    UpMessage,
    Welcome,
)
from goodspeed.wire.zmq.transport import DraftChannel

if TYPE_CHECKING:  # they import torch, which a node without a model never does
    from draft_node.model.drafter import Drafter
    from draft_node.model.drafting import Drafting

logger = logging.getLogger("goodspeed.draft")

TICK_S = 0.1
"""How often silence and repetitions are looked at."""


class DraftDaemon:
    """Serves sessions until cancelled; start `serve` beside the calls of `generate`."""

    def __init__(
        self,
        drafting: "Drafting | None",
        channel: DraftChannel,
        core: DraftCore,
        history: HistoryKeeper | None = None,
    ) -> None:
        """drafting: None for a node without a draft model; history: None where no file keeps it."""
        self.drafting = drafting
        self.channel = channel
        self.core = core
        self.connected = asyncio.Event()
        self.ready = asyncio.Event()  # texts can be begun
        self._history = history
        self._outboxes = Outboxes()
        self._outgoing = Outgoing(channel, self._not_sent)

    # -- for users -------------------------------------------------------------------------------------------------

    async def generate(self, request: Request) -> AsyncGenerator[Deliver | Finish | Fail, None]:
        """Tokens as they come, then Finish or Fail. Waits its turn (`core/line.py`).

        Leaving the iteration early closes the session at both nodes.
        """
        with self._outboxes.one(request.session_id) as outbox:
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

    async def end_generations(self, fail: Fail) -> None:
        """Closes what is running at both nodes; its users, and all that come later, are told why."""
        self._carry_out(self.core.drain(fail))

    @property
    def num_running(self) -> int:
        """Generations that have a place."""
        return self.core.line.num_seated

    @property
    def num_waiting(self) -> int:
        """Generations that wait for one."""
        return self.core.line.num_waiting

    @property
    def is_full(self) -> bool:
        """Whether another generation would have to wait."""
        return self.core.line.is_full

    @property
    def drafter(self) -> "Drafter | None":
        """The draft model; None without one."""
        return None if self.drafting is None else self.drafting.drafter

    @property
    def link(self) -> VerifyLink:
        return self.core.link

    @property
    def is_local(self) -> bool:
        """Whether the draft model writes alone now."""
        return self.core.is_local

    @property
    def connect_timeout_s(self) -> float:
        return self.core.connect_timeout_s

    @property
    def statistics(self) -> Statistics:
        """Over all sessions so far."""
        return self.core.statistics

    def session(self, session_id: bytes) -> Session:
        """The state of a generation that is being served; KeyError when there is none."""
        return self.core.sessions[session_id]

    # -- the process -----------------------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Serves until cancelled; raises PeerRefused or TransportError when going on is hopeless."""
        why = Fail("closed", "this draft node is shutting down")
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._collect())
                if self.drafting is not None:
                    tasks.create_task(self._draft(self.drafting))
                tasks.create_task(self._watch())
                tasks.create_task(self._outgoing.run())
                if self._history is not None:
                    tasks.create_task(self._history.run())
        except* (PeerRefused, TransportError) as group:
            why = Fail("verify_away", self.link.absence(time.monotonic()))
            raise group.exceptions[0] from None
        finally:
            self._outgoing.clear()  # the verify node ends all our sessions when we leave
            self._carry_out(self.core.leave(why))
            await self._outgoing.flush()
            if self.drafting is not None:
                self.drafting.close()
            self.channel.close()
            if self._history is not None:
                self._history.save_last()

    async def _collect(self) -> None:
        while True:
            try:
                messages: list[DownMessage | ProtocolError] = [await self.channel.receive()]
            except ProtocolError as error:
                messages = [error]
            for message in messages + self.channel.receive_ready():
                self._handle(message)

    def _handle(self, message: DownMessage | ProtocolError) -> None:
        if isinstance(message, ProtocolError):
            logger.warning("the verify node sent something unacceptable", extra={"why": message})
            return
        self._carry_out(self.core.receive(message, time.monotonic()))
        if isinstance(message, Refusal) and message.session_id is None:
            extra = {"code": message.code, "what": message.what, "what_to_do": message.what_to_do}
            logger.info("the verify node refused", extra=extra)

    async def _watch(self) -> None:
        """The clock, and what became of the connection."""
        while True:
            now = time.monotonic()
            if why := self.channel.failure():
                extra = {"why": why, "at": self.channel.endpoint}
                logger.info("the verify node does not let us in, and is asked again", extra=extra)
                self._carry_out(self.core.turned_away(why, now))
            if self.channel.broke():
                for message in self.channel.receive_ready():  # the last words on it
                    self._handle(message)
                self._carry_out(self.core.broke(now))
            self._carry_out(self.core.tick(now))
            await asyncio.sleep(TICK_S)

    async def _draft(self, drafting: "Drafting") -> None:
        """Whatever the draft model proposes goes to its session."""
        while True:
            for proposed in await drafting.take():
                self._carry_out(self.core.proposed(proposed, time.monotonic()))

    # -- actions ---------------------------------------------------------------------------------------------------

    def _carry_out(self, actions: Iterable[NodeAction]) -> None:
        for action in actions:
            match action:
                case act.Send():
                    self._outgoing.put(action.message)
                case act.Reconnect():
                    self._outgoing.reconnect()
                case act.Tell():
                    self._outboxes.tell(action.session_id, action.item)
                case act.Propose():
                    self._propose(action)
                case act.Connected():
                    self._connected(action.welcome, was_local=action.was_local)
                case act.Away():
                    logger.info("the verify node is away", extra={"num_waiting": self.num_running})
                    self.connected.clear()
                    self.ready.clear()
                case act.WriteLocally():
                    self.ready.set()
                    logger.info("from here on texts are the draft model's own", extra={"why": self._absence})
                case act.EndTexts():
                    extra = {"num_texts": action.num_texts, "why": self._absence}
                    logger.warning("texts end, since the verify node stays away", extra=extra)
                case act.GiveUp():
                    raise TransportError(self._absence)

    def _propose(self, wanted: act.Propose) -> None:
        now = time.monotonic()
        if self.drafting is None:
            answer: Proposed | None = Proposed(wanted.request.session_id, wanted.epoch, wanted.round, ())
        else:
            answer = self.drafting.want(wanted, now)
        if answer is not None:
            self._carry_out(self.core.proposed(answer, now))

    def _connected(self, welcome: Welcome, *, was_local: bool) -> None:
        self.channel.max_send_bytes = welcome.max_message_bytes
        if self.drafter is not None:
            self.drafter.max_proposal_bytes = welcome.max_message_bytes - FIXED_BYTES
        logger.info("the verify node is there", extra={"num_waiting": self.num_running})
        if was_local:
            logger.info("the verify node is back: from here on texts are the target's again")
        self.connected.set()
        self.ready.set()

    @property
    def _absence(self) -> str:
        return self.link.absence_at(self.channel.endpoint, self.connect_timeout_s)

    def _not_sent(self, message: UpMessage, error: MessageTooLarge | TransportError) -> None:
        if isinstance(error, MessageTooLarge):
            if not isinstance(message, OpenSession | Draft | Offer | Ack | Close):
                raise error
            self._carry_out(self.core.too_large(message.session_id, str(error)))
            return
        if not isinstance(message, Leave):
            logger.info("a message could not be sent", extra={"why": error})
        self._carry_out(self.core.send_failed(time.monotonic()))
