"""The verify node as a loop, told to stop in the middle of a round: the round ends, and everybody hears of it."""

import asyncio
import threading
from typing import Any

import pytest

from goodspeed.events import EventLog
from goodspeed.messages import DownMessage, Heartbeat, Refusal, UpMessage, Verdict, Welcome
from goodspeed.transport import DraftChannel, MemoryNetwork
from tests.fakes import TellingTarget, make_core, make_hello, make_open
from verify_node.daemon import VerifyDaemon
from verify_node.planner import Round
from verify_node.target import RoundResult

A, B = b"aaaaaaaa", b"bbbbbbbb"


class HeldTarget:
    """Holds every round until it is let go, as a long forward pass does."""

    def __init__(self, target: TellingTarget) -> None:
        self.entered, self.go_on = threading.Event(), threading.Event()
        self._target = target

    def run(self, planned: Round) -> RoundResult:
        self.entered.set()
        assert self.go_on.wait(30.0)
        return RoundResult(self._target.run(planned), 0.0, 0.0)


async def ask(channel: DraftChannel, message: UpMessage) -> DownMessage:
    await channel.send(message)
    return await hear(channel)


async def hear(channel: DraftChannel) -> DownMessage:
    """The next word that is no mere sign of life."""
    while isinstance(heard := await channel.receive(), Heartbeat):
        pass
    return heard


def test_told_to_stop_in_the_middle_of_a_round() -> None:
    async def story() -> None:
        core, network = make_core(), MemoryNetwork()
        held = HeldTarget(TellingTarget(core.pool, core.limits, core.context_len))
        target: Any = held
        daemon = VerifyDaemon(core, target, network.bind_verify(), EventLog(enabled=False))
        serving = asyncio.create_task(daemon.serve())
        first, second = network.connect_draft(A), network.connect_draft(B)
        assert isinstance(await ask(first, make_hello("a", boot_id=A)), Welcome)
        await first.send(make_open(1))
        assert await asyncio.to_thread(held.entered.wait, 30.0)
        serving.cancel()

        refused = await ask(second, make_hello("b", boot_id=B))
        assert isinstance(refused, Refusal)
        assert refused.code == "draining"
        assert not serving.done()  # the round is still in flight
        refused = await ask(first, make_open(2))
        assert isinstance(refused, Refusal)
        assert refused.session_id == make_open(2).session_id

        held.go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await serving
        verdict, farewell = await hear(first), await hear(first)
        assert isinstance(verdict, Verdict)
        assert len(verdict.tokens) == 1
        assert isinstance(farewell, Refusal)
        assert (farewell.code, farewell.session_id) == ("draining", None)
        assert core.num_rounds == 1

    asyncio.run(asyncio.wait_for(story(), 60))


def test_told_to_stop_when_nothing_happens() -> None:
    async def story() -> None:
        core, network = make_core(), MemoryNetwork()
        target: Any = None
        daemon = VerifyDaemon(core, target, network.bind_verify(), EventLog(enabled=False))
        serving = asyncio.create_task(daemon.serve())
        channel = network.connect_draft(A)
        await ask(channel, make_hello("a", boot_id=A))
        serving.cancel()
        farewell = await hear(channel)
        assert isinstance(farewell, Refusal)
        assert farewell.code == "draining"
        with pytest.raises(asyncio.CancelledError):
            await serving

    asyncio.run(asyncio.wait_for(story(), 60))
