"""The verify node as a loop: told to stop in the middle of a round, with a recorder, and with a split model."""

import asyncio
import itertools
from unittest.mock import Mock

import pytest

from goodspeed.errors import RankLost
from goodspeed.serving.events import EventLog
from goodspeed.wire.channels import DraftChannel
from goodspeed.wire.messages import Draft, Refusal, Verdict
from tests.fakes import VOCAB, make_hello, make_open, session_id
from tests.verify_node.loops import Loop, ask, hear, served
from tests.waiting import until
from verify_node.watch.recorder import RoundRecorder

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
        assert refused.session_id == session_id(2)

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


@served
async def test_what_is_refused_is_not_recorded() -> None:
    recorder = RoundRecorder(EventLog(enabled=False))
    async with Loop(recorder, rounds="barrier") as loop:
        owner, stranger = await loop.let_in(), loop.connect(B)
        assert isinstance(await ask(owner, make_open(1)), Verdict)
        assert loop.daemon.messages.uplink_bytes == 0  # nothing was drafted

        refused = await ask(stranger, make_open(1, epoch=2))
        assert refused.code == "hello_first"
        assert not loop.serving.done()

        session = loop.core.sessions[session_id(1)]
        for beyond in range(1, 11):
            answer = await ask(owner, Draft(session_id(1), 1, len(session.tokens) + beyond, (1,)))
            assert isinstance(answer, Refusal)
        assert recorder._known[session_id(1)].drafted_at is None
        await owner.send(Draft(session_id(1), 1, len(session.tokens), (1,)))
        await until(lambda: recorder._known[session_id(1)].drafted_at)
        assert loop.daemon.messages.uplink_bytes > 0


# -- with a split model: when a rank is lost it ends by an error -------------------------------------------------------


async def check_ends(loop: Loop, channel: DraftChannel) -> None:
    """By the error, and with a farewell."""
    await loop.ends_by(RankLost)
    farewell = await hear(channel)
    assert (farewell.code, farewell.session_id) == ("draining", None)


@pytest.mark.parametrize("when", ["idle", "in a round", "while stopping"])
@served
async def test_a_lost_rank_ends_the_node_with_a_farewell(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verify_node.process.daemon.HANGING_S", 0.2)
    async with Loop() as loop:
        loop.daemon.ranks = ranks = Mock()
        channel = await loop.let_in()
        if when != "idle":  # a forward pass that hangs
            loop.target.hold()
            await channel.send(make_open(1))
            await loop.target.entered()
        if when == "while stopping":
            loop.serving.cancel()
            await until(lambda: loop.core.draining)
            assert not loop.serving.done()
        ranks.check.side_effect = RankLost("rank 1 ended")
        await check_ends(loop, channel)
        ranks.close.assert_called_once_with()


@served
async def test_a_round_that_fails_for_a_lost_rank_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Loop() as loop:
        loop.daemon.ranks = Mock()
        monkeypatch.setattr(loop.target, "run", Mock(side_effect=RankLost("rank 1 ended")))
        channel = await loop.let_in()
        await channel.send(make_open(1))
        await check_ends(loop, channel)


@served
async def test_the_phases_add_up_to_the_time_of_the_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock goes on by a second each time that it is read, so every part of a round takes a whole time.

    The own work for a round is four parts (of the first: two), however often nothing could be planned before.
    """
    clock, work = Mock(side_effect=itertools.count(1.0)), Mock()
    monkeypatch.setattr("time.perf_counter", clock)
    async with Loop() as loop:
        monkeypatch.setattr(loop.core.rounds.cost, "observe_work", work)
        owner = await loop.let_in()
        loop.target.hold()
        await owner.send(make_open(1, max_tokens=4))
        await loop.target.entered()
        assert isinstance(await ask(owner, make_open(2, prompt=(VOCAB,))), Refusal), "sent during the forward pass"
        loop.target.let_go()
        await until(lambda: loop.core.sessions[session_id(1)].finished and loop.core.rounds.in_flight is None)
        await owner.send(make_open(3, prompt=(VOCAB,)))
        while not isinstance(await hear(owner), Refusal):  # sent while no round may start
            pass
        wall = loop.core.counts.wall
        await until(lambda: sum(vars(wall).values()) == clock.call_count - 1)
        assert wall.forward == loop.core.rounds.num_rounds
        worked = [call.args[0] for call in work.call_args_list]
        assert (worked[0], {*worked[1:]}) == (2.0, {4.0})
        assert wall.schedule > sum(worked), "attempts in vain count as scheduling"
