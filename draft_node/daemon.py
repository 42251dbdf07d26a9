"""Joins sessions, the draft model and the channel: the draft node as a process.

The event loop owns the channel and the sessions; the draft model has a thread of its own. `generate` is what faces
users: a request goes in, deliveries come out as they are verified. Every rule is in `session.py` and `link.py`.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from draft_node.core.actions import Action, Deliver, Fail, Finish, Propose, Request, Send, Statistics
from draft_node.core.link import Command, VerifyLink
from draft_node.core.local import Terms
from draft_node.core.session import Session
from draft_node.counts import Counts, total
from draft_node.model.drafter import Drafter
from draft_node.model.drafting import Drafting
from draft_node.serve.admission_queue import Slots
from goodspeed.errors import MessageTooLarge, PeerRefused, ProtocolError, TransportError
from goodspeed.wire.codec import FIXED_BYTES
from goodspeed.wire.messages import DownMessage, Heartbeat, Leave, Refusal, UpMessage, Verdict
from goodspeed.wire.zmq.transport import DraftChannel

logger = logging.getLogger("goodspeed.draft")

TICK_S = 0.1
"""How often silence and repetitions are looked at."""


@dataclass(slots=True)
class _Generation:
    """A session with the queue in which its user waits."""

    session: Session
    outbox: "asyncio.Queue[Deliver | Finish | Fail]" = field(default_factory=asyncio.Queue)


@dataclass
class DraftDaemon:
    """Serves sessions until cancelled; start `serve` beside the calls of `generate`."""

    drafter: Drafter
    channel: DraftChannel
    link: VerifyLink
    connect_timeout_s: float = 60.0
    max_sessions: int = 16
    draft_ahead: bool = True
    stays: bool = False  # an absent verify node ends the generations that wait for it, and not the daemon
    falls_back: bool = False  # an absent verify node ends nothing: the draft model goes on alone
    is_local: bool = False  # it does so now
    connected: asyncio.Event = field(default_factory=asyncio.Event)
    ready: asyncio.Event = field(default_factory=asyncio.Event)  # texts can be begun
    counts: Counts = field(default_factory=Counts)
    _generations: dict[bytes, _Generation] = field(default_factory=dict)
    drafting: Drafting = field(init=False)
    _slots: Slots = field(init=False)
    _leaving: set[asyncio.Task[None]] = field(default_factory=set)  # Close messages on their way
    _closing: bool = False
    _last_word: Fail | None = None  # what every generation is told from now on

    def __post_init__(self) -> None:
        self.drafting = Drafting(self.drafter)
        self._slots = Slots(self.max_sessions)

    # -- for users -------------------------------------------------------------------------------------------------

    async def generate(self, request: Request) -> AsyncGenerator[Deliver | Finish | Fail, None]:
        """Tokens as they come, then Finish or Fail. Waits its turn, first come first served.

        Leaving the iteration early closes the session at both nodes.
        """
        async with self._slots.one():
            generation = _Generation(Session(request, self.draft_ahead))
            self._generations[request.session_id] = generation
            try:
                if self._last_word is not None:
                    generation.outbox.put_nowait(self._last_word)
                elif self.link.connected:
                    await self._open(generation)
                elif self.is_local:
                    await self._fall_back(generation)
                while True:
                    item = await generation.outbox.get()
                    yield item
                    if not isinstance(item, Deliver):
                        return
            finally:
                await self._forget(generation)

    @property
    def num_running(self) -> int:
        """Generations that have a slot."""
        return len(self._generations)

    @property
    def num_waiting(self) -> int:
        """Generations that wait for one."""
        return self._slots.num_waiting

    @property
    def is_full(self) -> bool:
        """Whether another generation would have to wait."""
        return self._slots.is_full

    async def end_generations(self, fail: Fail) -> None:
        """Closes what is running at both nodes; its users, and all that come later, are told why."""
        self._tell_all(fail)
        self._last_word = fail
        for generation in list(self._generations.values()):
            await self._act(generation, generation.session.cancel())

    def session(self, session_id: bytes) -> Session:
        """The state of a generation that is being served; KeyError when there is none."""
        return self._generations[session_id].session

    @property
    def statistics(self) -> Statistics:
        """Over all sessions so far."""
        return total(self.counts.statistics, *(one.session.statistics for one in self._generations.values()))

    def _tell_all(self, fail: Fail) -> None:
        for generation in self._generations.values():
            generation.outbox.put_nowait(fail)

    async def _forget(self, generation: _Generation) -> None:
        session_id = generation.session.request.session_id
        del self._generations[session_id]
        self.counts.statistics = total(self.counts.statistics, generation.session.statistics)
        self.drafting.forget(session_id)
        leaving = asyncio.create_task(self._act(generation, generation.session.cancel()))
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)
        await asyncio.shield(leaving)  # who is cancelled, and again while the line is busy, has closed it all the same

    # -- the process -----------------------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Serves until cancelled; raises PeerRefused or TransportError when going on is hopeless."""
        why = Fail("closed", "this draft node is shutting down")
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._collect())
                tasks.create_task(self._draft())
                tasks.create_task(self._watch())
        except* (PeerRefused, TransportError) as group:
            why = Fail("verify_away", self.link.absence(time.monotonic()))
            raise group.exceptions[0] from None
        finally:
            await self._take_leave()
            self._closing = True
            self._last_word = why
            self._tell_all(why)
            self.drafting.close()
            self.channel.close()

    async def _take_leave(self) -> None:
        """So that the verify node need not find out; it would, by and by."""
        if self.link.connected:
            with suppress(TransportError):
                await self.channel.send(Leave())

    async def _collect(self) -> None:
        while True:
            try:
                messages: list[DownMessage | ProtocolError] = [await self.channel.receive()]
            except ProtocolError as error:
                messages = [error]
            for message in messages + self.channel.receive_ready():
                await self._handle(message)

    async def _handle(self, message: DownMessage | ProtocolError) -> None:
        if isinstance(message, ProtocolError):
            logger.warning("the verify node sent something unacceptable", extra={"why": message})
            return
        now = time.monotonic()
        if isinstance(message, Refusal):
            self.counts.refused(message.code)
        await self._obey(self.link.heard(message, now))
        if isinstance(message, Verdict | Refusal) and message.session_id is not None:
            generation = self._generations.get(message.session_id)
            if generation is not None:
                await self._act(generation, generation.session.receive(message, now))
        elif isinstance(message, Refusal):
            extra = {"code": message.code, "what": message.what, "what_to_do": message.what_to_do}
            logger.info("the verify node refused", extra=extra)

    async def _watch(self) -> None:
        """The clock: signs of life, silence, repetitions."""
        while True:
            now = time.monotonic()
            if why := self.channel.failure():
                extra = {"why": why, "at": self.channel.endpoint}
                logger.info("the verify node does not let us in, and is asked again", extra=extra)
                await self._obey(self.link.turned_away(why, now))
            if self.channel.broke():
                for message in self.channel.receive_ready():  # the last words on it
                    await self._handle(message)
                await self._obey(self.link.broke(now))
            await self._obey(self.link.tick(now))
            if self.link.away_s(now) > self.connect_timeout_s:
                await self._do_without()
            for generation in list(self._generations.values()):
                await self._act(generation, generation.session.tick(now))
            await asyncio.sleep(TICK_S)

    async def _do_without(self) -> None:
        """The verify node has been away for too long."""
        if self.falls_back:
            await self._write_locally()
        elif self.stays:
            if self._generations:
                extra = {"num_texts": len(self._generations), "why": self._away()}
                logger.warning("texts end, since the verify node stays away", extra=extra)
            self._tell_all(Fail("verify_away", f"{self.link.absence(time.monotonic())}; ask again later"))
        else:
            raise TransportError(self._away())

    def _away(self) -> str:
        """What the operator of this node is told; users are told `VerifyLink.absence`, without addresses."""
        what = f"the verify node at {self.channel.endpoint} has been away for {self.connect_timeout_s:g} s"
        if self.link.trouble:
            what += f", because it refuses this node: {self.link.trouble}"
        else:
            what += "; start goodspeed-verify there, or check the address"
        return what

    async def _write_locally(self) -> None:
        """The draft model goes on alone with whatever waits for the verify node."""
        if not self.is_local:
            self.is_local = True
            self.ready.set()
            logger.info("from here on texts are the draft model's own", extra={"why": self._away()})
        for generation in list(self._generations.values()):
            await self._fall_back(generation)

    async def _fall_back(self, generation: _Generation) -> None:
        welcome = self.link.welcome
        target_context_len = welcome.context_len if welcome is not None else None
        terms = Terms(self.link.absence(time.monotonic()), self.drafter.context_len, target_context_len)
        await self._act(generation, generation.session.fall_back(terms, time.monotonic()))

    async def _obey(self, commands: Iterable[Command]) -> None:
        for command in commands:
            match command:
                case Command.SAY_HELLO:
                    await self._send(self.link.hello)
                case Command.BEAT:
                    await self._send(Heartbeat(self.link.hello.boot_id))
                case Command.RECONNECT:
                    logger.info("reconnecting", extra={"endpoint": self.channel.endpoint})
                    await self.channel.reconnect()
                case Command.OPEN_SESSIONS:
                    await self._open_sessions()
                case Command.DROP_SESSIONS:
                    logger.info("the verify node is away", extra={"num_waiting": len(self._generations)})
                    self.connected.clear()
                    self.ready.clear()
                    for generation in self._generations.values():
                        generation.session.disconnect()

    async def _open_sessions(self) -> None:
        if self.link.welcome is not None:
            self.channel.max_send_bytes = self.link.welcome.max_message_bytes
            self.drafter.max_proposal_bytes = self.link.welcome.max_message_bytes - FIXED_BYTES
        logger.info("the verify node is there", extra={"num_waiting": len(self._generations)})
        if self.is_local:
            self.is_local = False
            logger.info("the verify node is back: from here on texts are the target's again")
        self.connected.set()
        self.ready.set()
        self.counts.num_connected += 1
        for generation in list(self._generations.values()):
            await self._open(generation)

    async def _open(self, generation: _Generation) -> None:
        welcome = self.link.welcome
        if welcome is not None:
            actions = generation.session.connect(time.monotonic(), welcome.target_fingerprint, welcome.context_len)
            await self._act(generation, actions)

    async def _act(self, generation: _Generation, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case Send():
                    await self._send_for(generation, action.message)
                case Propose():
                    now = time.monotonic()
                    if (given_up := self.drafting.want(action, now)) is not None:
                        await self._act(generation, generation.session.proposed(given_up, now))
                case _:
                    generation.outbox.put_nowait(action)

    async def _send_for(self, generation: _Generation, message: UpMessage) -> None:
        try:
            await self._send(message)
        except MessageTooLarge as error:
            generation.session.disconnect()
            generation.outbox.put_nowait(Fail("too_large", str(error)))

    async def _send(self, message: UpMessage) -> None:
        if self._closing:
            return
        try:
            await self.channel.send(message)
        except TransportError as error:
            logger.info("a message could not be sent", extra={"why": error})
            if self.link.connected:
                await self._obey(self.link.failed(time.monotonic()))

    # -- drafting --------------------------------------------------------------------------------------------------

    async def _draft(self) -> None:
        """Whatever the draft model proposes goes to its session."""
        while True:
            for proposed in await self.drafting.take():
                generation = self._generations.get(proposed.session_id)
                if generation is not None:
                    await self._act(generation, generation.session.proposed(proposed, time.monotonic()))
