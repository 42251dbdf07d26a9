"""The verify node as a loop, with a split model: when a rank is lost it ends by an error, and everybody hears."""

import asyncio
from typing import Any

import pytest

from goodspeed.errors import RankLost
from goodspeed.wire.messages import Refusal
from tests.fakes import make_hello, make_open
from tests.verify_node.loops import Loop, ask, hear

A = b"aaaaaaaa"


class LosingRanks:
    """Ranks of which one can be lost."""

    def __init__(self) -> None:
        self.is_lost = self.is_closed = False

    def check(self) -> None:
        if self.is_lost:
            raise RankLost("rank 1 ended")

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize("when", ["idle", "in a round", "while stopping"])
def test_a_lost_rank_ends_the_node_with_a_farewell(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verify_node.daemon.HANGING_S", 0.2)

    async def story() -> None:
        async with Loop() as loop:
            ranks: Any = LosingRanks()
            loop.daemon.ranks = ranks
            channel = loop.connect(A)
            await ask(channel, make_hello("a", boot_id=A))
            if when != "idle":  # a forward pass that hangs
                loop.target.hold()
                await channel.send(make_open(1))
                await loop.target.entered()
            if when == "while stopping":
                loop.serving.cancel()
                await asyncio.sleep(0.05)
                assert not loop.serving.done()
            ranks.is_lost = True
            with pytest.RaisesGroup(RankLost):
                await loop.serving
            assert ranks.is_closed
            farewell = await hear(channel)
            assert isinstance(farewell, Refusal)
            assert (farewell.code, farewell.session_id) == ("draining", None)
            loop.serving = asyncio.create_task(asyncio.sleep(0))

    asyncio.run(asyncio.wait_for(story(), 60))


def test_a_round_that_fails_for_a_lost_rank_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with Loop() as loop:
            ranks: Any = LosingRanks()
            loop.daemon.ranks = ranks

            def lose(_: object) -> None:
                raise RankLost("rank 1 ended")

            monkeypatch.setattr(loop.target, "run", lose)
            channel = loop.connect(A)
            await ask(channel, make_hello("a", boot_id=A))
            await channel.send(make_open(1))
            with pytest.RaisesGroup(RankLost):
                await loop.serving
            farewell = await hear(channel)
            assert isinstance(farewell, Refusal)
            assert farewell.code == "draining"
            loop.serving = asyncio.create_task(asyncio.sleep(0))

    asyncio.run(asyncio.wait_for(story(), 60))
