"""The verify node as a loop, told to stop in the middle of a round: the round ends, and everybody hears of it."""

import asyncio

import pytest

from tests.fakes import make_hello, make_open
from tests.verify_node.loops import Loop, ask, hear, served

B = b"bbbbbbbb"


@served
async def test_told_to_stop_in_the_middle_of_a_round() -> None:
    async with Loop() as loop:
        loop.target.hold()
        first, second = await loop.let_in(), loop.connect(B)
        await first.send(make_open(1))
        await loop.target.entered()
        loop.serving.cancel()

        refused = await ask(second, make_hello("b", boot_id=B))
        assert refused.code == "draining"
        assert not loop.serving.done()  # the round is still in flight
        refused = await ask(first, make_open(2))
        assert refused.session_id == make_open(2).session_id

        loop.target.let_go()
        with pytest.raises(asyncio.CancelledError):
            await loop.serving
        verdict, farewell = await hear(first), await hear(first)
        assert len(verdict.tokens) == 1
        assert (farewell.code, farewell.session_id) == ("draining", None)
        assert loop.core.rounds.num_rounds == 1


@served
async def test_told_to_stop_when_nothing_happens() -> None:
    async with Loop() as loop:
        channel = await loop.let_in()
        loop.serving.cancel()
        farewell = await hear(channel)
        assert farewell.code == "draining"
        with pytest.raises(asyncio.CancelledError):
            await loop.serving
