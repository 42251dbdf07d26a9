"""The verify node as a loop over an in-memory network, with a target whose rounds can be held. No sockets, no torch."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import wraps
from typing import Any

import pytest

from goodspeed.serving.events import EventLog
from goodspeed.wire.channels import DraftChannel
from goodspeed.wire.handshake import Heartbeat, Welcome
from goodspeed.wire.messages import DownMessage, UpMessage
from tests.fakes import TellingTarget, make_core, make_hello
from tests.memory_network import MemoryNetwork
from verify_node.core.core import VerifyCore
from verify_node.model.target import RoundResult
from verify_node.process.daemon import VerifyDaemon
from verify_node.scheduler.round import Round
from verify_node.watch.recorder import RoundRecorder

TIMEOUT_S = 30.0


def served(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Runs a test in an event loop of its own, for a minute at most."""

    @wraps(test)
    def run(*arguments: Any, **fixtures: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*arguments, **fixtures), 60))

    return run


class HeldTarget:
    """The fake target, which can hold rounds until they are let go, as a long forward pass does."""

    def __init__(self, core: VerifyCore) -> None:
        self.planned: list[Round] = []
        self._entered, self._go_on = threading.Semaphore(0), threading.Event()
        self._target = TellingTarget(core.pool, core.limits, core.welcome.context_len)
        self._go_on.set()

    def hold(self) -> None:
        """Every round from now on."""
        self._go_on.clear()

    def let_go(self) -> None:
        self._go_on.set()

    async def entered(self) -> None:
        """Returns once for each round that began, when it did."""
        assert await asyncio.to_thread(self._entered.acquire, timeout=TIMEOUT_S)

    def run(self, planned: Round) -> RoundResult:
        self.planned.append(planned)
        self._entered.release()
        assert self._go_on.wait(TIMEOUT_S)
        return RoundResult(self._target.run(planned), 0.0)

    def recover(self) -> None:
        """There is nothing to do."""


class Loop:
    """A verify node that serves, until its block ends."""

    def __init__(self, recorder: RoundRecorder | None = None, **options: Any) -> None:
        """options: of the core."""
        self.core, self._network = make_core(**options), MemoryNetwork()
        self.target = HeldTarget(self.core)
        target: Any = self.target
        silent = EventLog(enabled=False)
        self.daemon = VerifyDaemon(self.core, target, self._network.bind_verify(), silent, recorder)

    async def __aenter__(self) -> "Loop":
        self.serving = asyncio.create_task(self.daemon.serve())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.target.let_go()
        self.serving.cancel()
        with suppress(asyncio.CancelledError):
            await self.serving

    async def ends_by(self, error: Any) -> None:
        with pytest.RaisesGroup(error):
            await self.serving
        self.serving = asyncio.create_task(asyncio.sleep(0))  # for the block's end

    def connect(self, identity: bytes) -> DraftChannel:
        return self._network.connect_draft(identity)

    async def let_in(self, name: str = "a") -> DraftChannel:
        """Connects a draft node, which says Hello."""
        channel = self.connect(name.encode() * 8)
        assert isinstance(await ask(channel, make_hello(name, boot_id=name.encode() * 8)), Welcome)
        return channel


async def ask(channel: DraftChannel, message: UpMessage) -> DownMessage:
    await channel.send(message)
    return await hear(channel)


async def hear(channel: DraftChannel) -> DownMessage:
    """The next word that is no mere sign of life."""
    while isinstance(heard := await channel.receive(), Heartbeat):
        pass
    return heard
