"""A draft node in which something raises: that ends one text by name, and neither the others nor the node."""

import asyncio
from typing import Any

import pytest

from draft_node.core.actions import Deliver, Fail, Finish
from draft_node.core.generation import Generation
from draft_node.core.session import Session
from draft_node.process.daemon import DraftDaemon
from goodspeed.errors import NodeFailed
from goodspeed.serving import loop as serving_loop
from goodspeed.wire.channels import VerifyChannel
from goodspeed.wire.handshake import Hello
from goodspeed.wire.messages import Close, OpenSession, Sampling, Verdict
from tests.draft_node.process.test_daemon_stops import start, stop
from tests.fakes import make_core, session_id
from tests.memory_network import MemoryNetwork
from tests.waiting import arrival, run_async, until


async def verify_node(verify: VerifyChannel, closed: list[bytes] | None = None) -> None:
    """Lets everybody in, and ends each text with its first token; notes the sessions that are closed."""
    while True:
        received = await arrival(verify)
        if isinstance(received.message, Hello):
            verify.send(received.peer, make_core().welcome)
        elif isinstance(received.message, OpenSession):
            opened = received.message
            base_len = len(opened.prompt) + len(opened.committed)
            verdict = Verdict(opened.session_id, opened.epoch, base_len, (7,), 0, 0, finish_reason="stop")
            verify.send(received.peer, verdict)
        elif isinstance(received.message, Close) and closed is not None:
            closed.append(received.message.session_id)


async def told(daemon: DraftDaemon, number: int) -> list[Deliver | Finish | Fail]:
    return [item async for item in daemon.generate(Generation(session_id(number), (1,), Sampling(), 5))]


@run_async
async def test_a_message_that_fails_ends_its_text_and_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = Session.receive

    def receive(session: Session, *arguments: Any) -> Any:
        if session.request.session_id == session_id(1):
            raise ZeroDivisionError("by zero")
        return real(session, *arguments)

    monkeypatch.setattr(Session, "receive", receive)
    network, closed = MemoryNetwork(), list[bytes]()
    answering = asyncio.create_task(verify_node(network.bind_verify(), closed))
    daemon, serving = start(network)
    await daemon.connected.wait()
    first, second = await asyncio.gather(told(daemon, 1), told(daemon, 2))
    [failed] = first
    assert isinstance(failed, Fail)
    assert failed.code == "failed"
    assert "ZeroDivisionError" in failed.what
    assert isinstance(second[-1], Finish)
    assert not daemon.core.sessions
    await until(lambda: session_id(1) in closed)
    answering.cancel()
    await stop(serving)
    assert "by zero" in caplog.text


@pytest.mark.parametrize("times", [1, 100])
@run_async
async def test_looks_around_that_fail_end_the_node_only_again_and_again(
    times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving_loop, "MAX_FAILURES", 2)
    network = MemoryNetwork()
    answering = asyncio.create_task(verify_node(network.bind_verify()))
    daemon, serving = start(network)
    await daemon.connected.wait()
    tick, num_raised = daemon.core.tick, 0

    def fails(now: float) -> Any:
        nonlocal num_raised
        if num_raised < times:
            num_raised += 1
            raise ZeroDivisionError("by zero")
        return tick(now)

    monkeypatch.setattr(daemon.core, "tick", fails)
    if times > 2:
        with pytest.RaisesGroup(NodeFailed):
            await serving
        assert num_raised == 3
    else:
        await until(lambda: num_raised)
        assert isinstance((await told(daemon, 1))[-1], Finish)
        await stop(serving)
    answering.cancel()
