"""The draft node as a process: carries out, with channels, a draft model and a clock, what `core/core.py` decides.

The event loop owns the channels and the core; the draft model has a thread of its own. `generate` is what faces users:
a request goes in, deliveries come out as they are verified. No rule is here.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from draft_node.core import actions as act
from draft_node.core.actions import Deliver, Fail, Finish, NodeAction, Proposed, Request, Statistics
from draft_node.core.core import DraftCore
from draft_node.core.link import VerifyLink
from draft_node.core.session import Session
from draft_node.histories import HistoryKeeper
from draft_node.lines import ConnectTo, Lines
from goodspeed.errors import MessageTooLarge, PeerRefused, ProtocolError, TransportError
from goodspeed.serving.loop import Failures
from goodspeed.wire.codec import FIXED_BYTES
from goodspeed.wire.handshake import Leave
from goodspeed.wire.messages import (
    Ack,
    Close,
    DownMessage,
    Draft,
    OpenSession,
    Redirect,
    Refusal,
    UpMessage,
    Verdict,
)
from goodspeed.wire.zmq.transport import DraftChannel

if TYPE_CHECKING:  # they import torch, which a node without a model never does
    from draft_node.model.drafter import Drafter
    from draft_node.model.drafting import Drafting

logger = logging.getLogger("goodspeed.draft")

ENDS = (PeerRefused, TransportError)
"""What ends this node: it is refused for good, or no verify node is there for too long."""

MAX_NAMED = 4
"""Verify nodes that are named where none of them answers."""

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
        connect: ConnectTo | None = None,
    ) -> None:
        """channel: of link 0. drafting: None for a node without a draft model; history: None where no file keeps it.

        connect: makes a channel to another verify node; None where there is none.
        """
        self.drafting = drafting
        self.core = core
        self.lines = Lines(channel, connect, self._handle, self._not_sent, self._unreachable)
        self.connected = asyncio.Event()
        self.ready = asyncio.Event()  # texts can be begun
        self._history = history
        self._failed_looks = Failures(logger, "a look around", ENDS)
        self._outboxes: dict[bytes, asyncio.Queue[Deliver | Finish | Fail]] = {}  # of users who are there

    # -- for users -------------------------------------------------------------------------------------------------

    async def generate(self, request: Request) -> AsyncGenerator[Deliver | Finish | Fail, None]:
        """Tokens as they come, then Finish or Fail. Waits its turn (`core/line.py`).

        Leaving the iteration early closes the session at both nodes.
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
        """True if another generation would have to wait."""
        return self.core.line.is_full

    @property
    def drafter(self) -> "Drafter | None":
        """The draft model; None without one."""
        return None if self.drafting is None else self.drafting.drafter

    @property
    def channel(self) -> DraftChannel:
        """The home link's."""
        return self.lines.channel(self.core.links.home)

    @property
    def link(self) -> VerifyLink:
        """The home link: new texts are begun on it."""
        return self.core.link

    def away_s(self, now: float) -> float:
        """Returns for how long no verify node has been there; 0 while one is."""
        return self.core.away_s(now)

    @property
    def is_local(self) -> bool:
        """True if the draft model writes alone now."""
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
                self.lines.begin(tasks)
                if self.drafting is not None:
                    tasks.create_task(self._draft(self.drafting))
                tasks.create_task(self._watch())
                if self._history is not None:
                    tasks.create_task(self._history.run())
        except* (PeerRefused, TransportError) as group:
            why = Fail("verify_away", self.link.absence(time.monotonic()))
            raise group.exceptions[0] from None
        finally:
            self.lines.clear()  # a verify node ends all our sessions when we leave
            self._carry_out(self.core.leave(why))
            await self.lines.flush()
            if self.drafting is not None:
                self.drafting.close()
            self.lines.close()
            if self._history is not None:
                self._history.save_last()

    def _handle(self, link: int, message: DownMessage | ProtocolError) -> None:
        if isinstance(message, ProtocolError):
            logger.warning("the verify node sent something unacceptable", extra={"why": message})
            return
        with self._of(message.session_id if isinstance(message, Redirect | Verdict | Refusal) else None):
            self._carry_out(self.core.receive(message, time.monotonic(), link))
        if isinstance(message, Refusal) and message.session_id is None:
            extra = {"code": message.code, "what": message.what, "what_to_do": message.what_to_do}
            logger.info("the verify node refused", extra=extra)

    async def _watch(self) -> None:
        """The clock, and what became of the connections."""
        while True:
            async with self._failed_looks.survived():
                self._look_around()
            await asyncio.sleep(TICK_S)

    def _look_around(self) -> None:
        now = time.monotonic()
        for link, channel in self.lines.channels():
            self._look_at(link, channel, now)
        self._carry_out(self.core.tick(now))

    def _look_at(self, link: int, channel: DraftChannel, now: float) -> None:
        if why := channel.failure():
            extra = {"why": why, "at": channel.endpoint}
            logger.info("the verify node does not let us in, and is asked again", extra=extra)
            self._carry_out(self.core.turned_away(why, now, link))
        if channel.broke():
            for message in channel.receive_ready():  # the last words on it
                self._handle(link, message)
            self._carry_out(self.core.broke(now, link))

    def _unreachable(self, link: int, why: Exception) -> None:
        """No channel could be made to a verify node that another one named."""
        logger.warning("a verify node cannot be connected to", extra={"why": why})
        self.core.unreachable(link)

    async def _draft(self, drafting: "Drafting") -> None:
        """Whatever the draft model proposes goes to its session."""
        while True:
            for proposed in await drafting.take():
                with self._of(proposed.session_id):
                    self._carry_out(self.core.proposed(proposed, time.monotonic()))

    @contextmanager
    def _of(self, session_id: bytes | None) -> Iterator[None]:
        """An event of one text, or of none: if it raises, that is told, and its text ends by name and no other."""
        try:
            yield
        except ENDS:
            raise
        except Exception as error:
            logger.exception("an event failed", extra={"session": session_id.hex() if session_id else None})
            if session_id is not None:
                why = Fail("failed", f"this draft node failed on the text: {type(error).__name__}; see its log")
                self._carry_out(self.core.fail(session_id, why))

    # -- actions ---------------------------------------------------------------------------------------------------

    def _carry_out(self, actions: Iterable[NodeAction]) -> None:
        for action in actions:
            match action:
                case act.Send():
                    self.lines.put(action.link, action.message)
                case act.Connect():
                    logger.info("another verify node is tried", extra={"at": action.address.endpoint})
                    self.lines.connect(action.link, action.address)
                case act.Disconnect():
                    self.lines.disconnect(action.link)
                case act.Reconnect():
                    self.lines.reconnect(action.link)
                case act.Tell():
                    if (outbox := self._outboxes.get(action.session_id)) is not None:
                        outbox.put_nowait(action.item)
                case act.Propose():
                    self._propose(action)
                case act.Connected():
                    self._connected(action)
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

    def _connected(self, action: act.Connected) -> None:
        self.lines.channel(action.link).max_send_bytes = action.welcome.max_message_bytes
        if self.drafter is not None:
            others = [one.max_message_bytes for one in self.core.links.welcomes]
            self.drafter.max_proposal_bytes = min(action.welcome.max_message_bytes, *others) - FIXED_BYTES
        extra = {"at": self.lines.channel(action.link).endpoint, "num_waiting": self.num_running}
        logger.info("the verify node is there", extra=extra)
        if action.was_local:
            logger.info("the verify node is back: from here on texts are the target's again")
        self.connected.set()
        self.ready.set()

    @property
    def _absence(self) -> str:
        endpoints = [address.endpoint for address in self.core.links.directory.addresses()]
        where = self.channel.endpoint if len(endpoints) == 1 else ", ".join(endpoints[:MAX_NAMED])
        return self.link.absence_at(where, self.connect_timeout_s)

    def _not_sent(self, link: int, message: UpMessage, error: MessageTooLarge | TransportError) -> None:
        if isinstance(error, MessageTooLarge):
            if not isinstance(message, OpenSession | Draft | Ack | Close):
                raise error
            self._carry_out(self.core.too_large(message.session_id, Fail("too_large", str(error))))
            return
        if not isinstance(message, Leave):
            logger.info("a message could not be sent", extra={"why": error})
        self._carry_out(self.core.send_failed(time.monotonic(), link))
