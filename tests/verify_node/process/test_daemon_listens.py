"""The verify node as a loop, beside somebody whose messages are all refused: they wake nobody, and others are heard."""

import asyncio
from typing import Any

import pytest

from goodspeed.wire.channels import DraftChannel
from goodspeed.wire.messages import Ack, Draft, Refusal
from tests.fakes import make_open, session_id
from tests.verify_node.loops import Loop, ask, hear, served
from tests.waiting import until
from verify_node.core import rate_limit
from verify_node.core.core import VerifyCore
from verify_node.process import message_loop


async def hold_a_round(loop: Loop, honest: DraftChannel) -> None:
    """Starts a round of session 1; it is in flight until it is let go."""
    loop.target.hold()
    await honest.send(make_open(1))
    await loop.target.entered()


async def disturb(hostile: DraftChannel) -> None:
    """About a session that nobody opened."""
    assert isinstance(await ask(hostile, Ack(session_id(9), 1, 3)), Refusal)


def watch(core: VerifyCore, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Returns what the core is asked from now on, and which messages it gets."""
    asked: list[str] = []

    def tell(part: Any, name: str) -> None:
        ask_core = getattr(part, name)

        def told(*arguments: Any, **named: Any) -> Any:
            asked.append(type(arguments[1]).__name__ if name == "receive" else name)
            return ask_core(*arguments, **named)

        monkeypatch.setattr(part, name, told)

    for name in ("plan", "tick", "receive"):
        tell(core, name)
    tell(core.rounds, "finish")
    return asked


@served
async def test_what_is_refused_asks_for_no_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_loop, "PAUSE_S", 3600.0)  # which is for rounds in flight
    async with Loop() as loop:
        honest, hostile = await loop.let_in("a"), await loop.let_in("b")
        asked = watch(loop.core, monkeypatch)
        for _ in range(100):
            await disturb(hostile)
        assert asked.count("Ack") == 100
        assert asked.count("plan") < 50  # with every tick, and while one is overdue
        await honest.send(make_open(1))
        await loop.target.entered()


@served
async def test_a_round_that_waited_for_somebody_who_is_put_out_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Loop(rounds="barrier") as loop:
        honest, hostile = await loop.let_in("a"), await loop.let_in("b")
        loop.target.hold()
        for number, channel in enumerate((honest, hostile), start=1):
            await channel.send(make_open(number))
        await until(lambda: len(loop.core.sessions) == 2)
        loop.target.let_go()
        await until(lambda: all(session.drafts.may_draft for session in loop.core.sessions.values()))
        one = loop.core.sessions[session_id(1)]
        await honest.send(Draft(session_id(1), 1, len(one.tokens), (1,), complete=True))
        await until(lambda: one.drafts.newest)

        asked, num_rounds = watch(loop.core, monkeypatch), len(loop.target.planned)
        for _ in range(int(rate_limit.BARRED) + 1):
            await hostile.send(make_open(3, prompt=(1 << 30,)))
        await until(lambda: len(loop.target.planned) > num_rounds)
        assert session_id(2) not in loop.core.sessions
        last_word = len(asked) - 1 - asked[::-1].index("OpenSession")
        assert asked[last_word + 1] == "plan"  # at once, and not with the next tick


@served
async def test_whoever_spoke_in_a_pause_is_heard_before_the_round_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_loop, "PAUSE_S", 3600.0)
    async with Loop() as loop:
        honest, hostile = await loop.let_in("a"), await loop.let_in("b")
        await hold_a_round(loop, honest)
        await disturb(hostile)  # from now on nothing is read, for an hour or until the round is done
        asked = watch(loop.core, monkeypatch)
        await honest.send(make_open(2))
        await hostile.send(Draft(session_id(9), 1, 3, (1, 2, 3)))
        for _ in range(100):
            await asyncio.sleep(0)
        assert set(asked) <= {"tick"}

        loop.target.let_go()
        await loop.target.entered()
        assert [name for name in asked if name not in ("tick", "plan")][:3] == ["OpenSession", "Draft", "finish"]
        assert isinstance(await hear(hostile), Refusal)


@served
async def test_a_pause_ends_during_a_long_round() -> None:
    async with Loop() as loop:
        honest, hostile = await loop.let_in("a"), await loop.let_in("b")
        await hold_a_round(loop, honest)
        for _ in range(5):
            await disturb(hostile)  # answered, though the round goes on
        await honest.send(make_open(2))
        await until(lambda: session_id(2) in loop.core.sessions)
        assert len(loop.target.planned) == 1


@served
async def test_a_burst_of_one_peer_holds_up_no_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """With looks of a single message each, and pauses that last until the round is done."""
    monkeypatch.setattr(message_loop, "TURN_S", 0.0)
    monkeypatch.setattr(message_loop, "PAUSE_S", 3600.0)
    async with Loop() as loop:
        honest, busy = await loop.let_in("a"), await loop.let_in("b")
        await hold_a_round(loop, honest)
        asked = watch(loop.core, monkeypatch)
        for number in range(100):
            await busy.send(make_open(10 + number, max_tokens=1))
        await until(lambda: "OpenSession" in asked)
        loop.target.let_go()
        await until(lambda: "finish" in asked)
        assert asked[: asked.index("finish")].count("OpenSession") == 2, "one during the round, and one at its end"
        await until(lambda: asked.count("OpenSession") == 100)
