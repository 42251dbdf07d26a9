"""The verify node as a loop in which something raises: that costs a round or a session, and never the node."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from experiments.simulation.nodes.invariants import validate
from goodspeed.constraint.compiling import Constraints
from goodspeed.errors import NodeFailed, TransportError
from goodspeed.serving import loop as serving_loop
from goodspeed.slo.objectives import OTHER, Objectives
from goodspeed.wire.channels import DraftChannel
from goodspeed.wire.handshake import Welcome
from goodspeed.wire.messages import Ack, Close, Refusal, Slo, Verdict
from tests.constraint.babbler import VOCABULARY
from tests.fakes import expected, make_hello, make_open, session_id
from tests.verify_node.loops import Loop, ask, hear, served
from tests.verify_node.slo.test_promises import COST
from tests.waiting import until
from verify_node.process.enrolment import Enrolment

Where = Callable[[Loop], tuple[Any, str]]
"""The object whose method is to raise, and the method's name. `core/test_faults.py` has any call within the core."""

IN_A_ROUND: dict[str, Where] = {
    "planning": lambda loop: (loop.core.rounds.starting, "look"),
    "forward pass": lambda loop: (loop.target, "run"),
    "verdicts": lambda loop: (loop.core.replies, "tell"),
    "report": lambda loop: (loop.daemon, "_report"),
}


Sabotage = Callable[..., list[int]]


@pytest.fixture
def sabotage(monkeypatch: pytest.MonkeyPatch) -> Sabotage:
    """Has a method raise so many times, from now on; returns what grows with each."""

    def have_raise(target: tuple[Any, str], error: Exception | None = None, times: float = 1) -> list[int]:
        raised: list[int] = []
        real = getattr(*target)

        def fails(*arguments: Any, **options: Any) -> Any:
            if len(raised) < times:
                raised.append(1)
                raise error or ZeroDivisionError("by zero")
            return real(*arguments, **options)

        monkeypatch.setattr(*target, fails)
        return raised

    return have_raise


async def whole_text(channel: DraftChannel, number: int, epoch: int = 1) -> tuple[int, ...]:
    """A text to its end; it is opened again where its session ended by no fault of its own."""
    opened = make_open(number, epoch=epoch)
    text: list[int] = []
    await channel.send(opened)
    while True:
        heard = await hear(channel)
        if isinstance(heard, Refusal):
            assert heard.code == "unknown_session"
            opened = make_open(number, epoch=opened.epoch + 1, committed=tuple(text))
            await channel.send(opened)
        elif isinstance(heard, Verdict) and heard.epoch == opened.epoch:
            text[heard.base_len - len(opened.prompt) :] = heard.tokens
            if heard.finish_reason is not None:
                return tuple(text)
            await channel.send(Ack(session_id(number), opened.epoch, len(opened.prompt) + len(text)))


@pytest.mark.parametrize("where", IN_A_ROUND)
@served
async def test_a_round_that_fails_is_told_and_made_again(where: str, sabotage: Sabotage, caplog: Any) -> None:
    async with Loop() as loop:
        first, second = await loop.let_in("a"), await loop.let_in("b")
        loop.target.hold()
        texts = [asyncio.create_task(whole_text(one, n)) for n, one in ((1, first), (2, second))]
        await loop.target.entered()
        await until(lambda: len(loop.core.sessions) == 2)
        loop.target.let_go()
        await until(lambda: loop.core.rounds.num_rounds >= 3)  # both take part in each
        sabotage(IN_A_ROUND[where](loop))
        assert await asyncio.gather(*texts) == [expected(1), expected(2)]
        assert loop.core.counts.num_failed == 1
        validate(loop.core)
    [record] = [record for record in caplog.records if record.getMessage() == "a round failed"]
    assert record.exc_info
    assert "ZeroDivisionError" in caplog.text


@served
async def test_a_failure_is_logged_under_its_round_and_with_its_sessions(sabotage: Sabotage, caplog: Any) -> None:
    async with Loop() as loop:
        channel = await loop.let_in()
        assert await whole_text(channel, 1) == expected(1)
        number = loop.core.rounds.num_rounds + 1
        sabotage((loop.core.rounds.choice, "choose"))
        await ask(channel, make_open(2, max_draft=0))
    [record] = [record for record in caplog.records if record.getMessage() == "a round failed"]
    assert (vars(record)["round"], vars(record)["num_entries"]) == (number, 1)


@pytest.mark.parametrize("where", ["allot", "decide", "_decide", "lapse"])
@served
async def test_promises_that_cannot_be_worked_out_cost_promises_and_nothing_else(where, sabotage, monkeypatch):
    """They raise each time: everybody is told that nothing is promised, and is served as well as can be."""
    monkeypatch.setattr(serving_loop, "MAX_FAILURES", 2)
    async with Loop(admission="dp", cost=COST) as loop:
        channel = await loop.let_in()
        sabotage((loop.core.promises, where), times=1e9)
        for number in (1, 2, 3, 4):
            slo = Slo(Objectives(ttft_s=10.0, tpot_s=1.0))
            verdict = await ask(channel, make_open(number, slo=slo, max_draft=0))
            assert isinstance(verdict, Verdict), verdict
            assert verdict.promised is False
            await channel.send(Close(session_id(number), 1))
        assert loop.core.counts.promises == {(OTHER, "promised" if where == "allot" else "declined"): 4}
        validate(loop.core)


@served
async def test_a_session_alone_has_one_more_try_after_a_fault_at_the_end_of_its_round(sabotage: Sabotage) -> None:
    async with Loop() as loop:
        channel = await loop.let_in()
        sabotage((loop.core.rounds.preemption, "finished"))
        assert await whole_text(channel, 1) == expected(1)
        raised = sabotage((loop.core.rounds.preemption, "finished"), times=1e9)
        await channel.send(make_open(2, max_draft=0))
        refusals = [await hear(channel)]
        await channel.send(make_open(2, epoch=2, max_draft=0))
        refusals.append(await hear(channel))
        assert [one.code for one in refusals if isinstance(one, Refusal)] == ["unknown_session", "failed"]
        assert len(raised) == 2


LOOPS: dict[str, Where] = {
    "what arrives": lambda loop: (loop.daemon.messages, "_handle"),
    "the clock": lambda loop: (loop.core.register, "expire"),
    "the enrolment": lambda loop: (loop.daemon.enrolment, "look"),
    "the fleet": lambda loop: (loop.daemon.member, "look"),
    "constraints": lambda loop: (loop.core.sessions, "next_to_compile"),
}


@pytest.mark.parametrize("where", LOOPS)
@served
async def test_no_loop_of_the_node_ends_it_by_a_failure(where, sabotage, monkeypatch, tmp_path):
    for module, name in (("daemon", "LOOK_S"), ("daemon", "PEERS_LOOK_S")):
        monkeypatch.setattr(f"verify_node.process.{module}.{name}", 0.001)
    loop = Loop(constraints=Constraints(VOCABULARY) if where == "constraints" else None, heartbeat_s=0.01)
    loop.daemon.enrolment = Enrolment(str(tmp_path)) if where == "the enrolment" else None
    still: Any = SimpleNamespace(name="a", look=lambda load: None)  # a fleet in which nothing changes
    loop.daemon.member = still if where == "the fleet" else None
    raised = sabotage(LOOPS[where](loop), times=3)
    async with loop:
        channel = loop.connect(b"a" * 8)
        while len(raised) < 3:
            await channel.send(make_hello("a"))
            await asyncio.sleep(0)
        assert isinstance(await ask(channel, make_hello("a")), Welcome)


@served
async def test_rounds_that_fail_again_and_again_end_the_node(sabotage: Sabotage, monkeypatch: Any) -> None:
    monkeypatch.setattr(serving_loop, "PAUSE_S", 0.0)
    monkeypatch.setattr(serving_loop, "MAX_FAILURES", 7)
    async with Loop() as loop:
        channel = await loop.let_in()
        raised = sabotage((loop.core.rounds.starting, "look"), times=1e9)
        await channel.send(make_open(1))
        await loop.ends_by(pytest.RaisesExc(NodeFailed, match="a round failed 8 times.*ZeroDivisionError"))
        assert len(raised) == 8
        farewell = await hear(channel)
        assert farewell.code == "draining"


@served
async def test_failures_that_are_not_in_a_row_end_nothing(sabotage: Sabotage, monkeypatch: Any) -> None:
    monkeypatch.setattr(serving_loop, "MAX_FAILURES", 1)
    async with Loop() as loop:
        channel = await loop.let_in()
        for number in (1, 2, 3):
            sabotage((loop.core.rounds.starting, "look"))
            assert await whole_text(channel, number) == expected(number)
        assert loop.core.counts.num_failed == 3


@pytest.mark.parametrize("error", [TransportError("closed"), BrokenPipeError()])
@served
async def test_what_no_later_round_could_mend_ends_the_node_at_once(error: Exception, sabotage: Sabotage) -> None:
    async with Loop() as loop:
        channel = await loop.let_in()
        sabotage((loop.daemon, "_report"), error)
        await channel.send(make_open(1))
        await loop.ends_by(type(error))


@served
async def test_a_message_that_fails_costs_its_session_and_no_other(sabotage: Sabotage) -> None:
    async with Loop() as loop:
        first, second = await loop.let_in("a"), await loop.let_in("b")
        sabotage((loop.core.promises, "opened"))
        refused = await ask(first, make_open(1))
        assert (refused.code, refused.session_id) == ("failed", session_id(1))
        assert session_id(1) not in loop.core.sessions
        assert await whole_text(second, 2) == expected(2)
        assert await whole_text(first, 1, epoch=2) == expected(1)
        validate(loop.core)
