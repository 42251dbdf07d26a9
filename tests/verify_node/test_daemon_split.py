"""The verify node as a loop, with a split model: when a rank is lost it ends by an error, and everybody hears."""

import asyncio
from typing import Any

import pytest

from goodspeed.errors import RankLost
from goodspeed.wire.zmq.transport import DraftChannel
from tests.fakes import make_open
from tests.verify_node.loops import Loop, hear, served


class LosingRanks:
    """Ranks of which one can be lost."""

    def __init__(self) -> None:
        self.is_lost = self.is_closed = False

    def check(self) -> None:
        if self.is_lost:
            raise RankLost("rank 1 ended")

    def close(self) -> None:
        self.is_closed = True


async def check_ends(loop: Loop, channel: DraftChannel) -> None:
    """By the error, and with a farewell."""
    with pytest.RaisesGroup(RankLost):
        await loop.serving
    farewell = await hear(channel)
    assert (farewell.code, farewell.session_id) == ("draining", None)
    loop.serving = asyncio.create_task(asyncio.sleep(0))


@pytest.mark.parametrize("when", ["idle", "in a round", "while stopping"])
@served
async def test_a_lost_rank_ends_the_node_with_a_farewell(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verify_node.process.daemon.HANGING_S", 0.2)
    ranks: Any = LosingRanks()
    async with Loop() as loop:
        loop.daemon.ranks = ranks
        channel = await loop.let_in()
        if when != "idle":  # a forward pass that hangs
            loop.target.hold()
            await channel.send(make_open(1))
            await loop.target.entered()
        if when == "while stopping":
            loop.serving.cancel()
            await asyncio.sleep(0.05)
            assert not loop.serving.done()
        ranks.is_lost = True
        await check_ends(loop, channel)
        assert ranks.is_closed


@served
async def test_a_round_that_fails_for_a_lost_rank_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(_: object) -> None:
        raise RankLost("rank 1 ended")

    ranks: Any = LosingRanks()
    async with Loop() as loop:
        loop.daemon.ranks = ranks
        monkeypatch.setattr(loop.target, "run", lose)
        channel = await loop.let_in()
        await channel.send(make_open(1))
        await check_ends(loop, channel)
