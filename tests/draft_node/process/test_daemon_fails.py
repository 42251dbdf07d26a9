"""An exception in a draft node ends one text by name, and neither others nor the node. A node ends in order."""

import asyncio
from itertools import chain, repeat
from typing import Any
from unittest.mock import DEFAULT, Mock

import pytest

from draft_node.core.actions import Deliver, Fail, Finish
from draft_node.core.core import DraftCore
from draft_node.core.generation import Generation
from draft_node.core.link import VerifyLink
from draft_node.core.session import Session
from draft_node.process.daemon import DraftDaemon
from goodspeed.errors import NodeFailed, TransportError
from goodspeed.serving import loop as serving_loop
from goodspeed.wire.channels import VerifyChannel
from goodspeed.wire.handshake import Hello, Leave
from goodspeed.wire.messages import Close, OpenSession, Sampling, Verdict
from tests.fakes import make_core, make_hello, session_id
from tests.memory_network import MemoryNetwork, peer_name
from tests.waiting import arrival, until

BOOT = b"aaaaaaaa"


def start(network: MemoryNetwork) -> "tuple[DraftDaemon, asyncio.Task[None]]":
    """A draft node without a model, which serves."""
    link = VerifyLink.begin(make_hello(boot_id=BOOT), 3.0, asyncio.get_running_loop().time())
    daemon = DraftDaemon(None, network.connect_draft(BOOT), DraftCore(link))
    return daemon, asyncio.create_task(daemon.serve())


async def stop(serving: "asyncio.Task[None]") -> None:
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving


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


async def test_a_message_that_fails_ends_its_text_and_no_other(monkeypatch, caplog):
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
    assert (type(failed), failed.code) == (Fail, "failed")
    assert "ZeroDivisionError" in failed.what
    assert isinstance(second[-1], Finish)
    assert not daemon.core.sessions
    await until(lambda: session_id(1) in closed)
    answering.cancel()
    await stop(serving)
    assert "by zero" in caplog.text


@pytest.mark.parametrize("times", [1, 100])
async def test_looks_around_that_fail_end_the_node_only_again_and_again(times, monkeypatch):
    monkeypatch.setattr(serving_loop, "MAX_FAILURES", 2)
    network = MemoryNetwork()
    answering = asyncio.create_task(verify_node(network.bind_verify()))
    daemon, serving = start(network)
    await daemon.connected.wait()
    errors = [ZeroDivisionError("by zero")] * times
    tick = Mock(wraps=daemon.core.tick, side_effect=chain(errors, repeat(DEFAULT)))
    monkeypatch.setattr(daemon.core, "tick", tick)
    if times > 2:
        with pytest.RaisesGroup(NodeFailed):
            await serving
        assert tick.call_count == 3
    else:
        await until(lambda: tick.called)
        assert isinstance((await told(daemon, 1))[-1], Finish)
        await stop(serving)
    answering.cancel()


# -- the end -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_there", [True, False])
async def test_leaves_with_a_word_and_has_nothing_to_say_to_a_verify_node_that_is_away(is_there: bool) -> None:
    network = MemoryNetwork()
    verify = network.bind_verify()
    daemon, serving = start(network)
    assert isinstance((await arrival(verify)).message, Hello)
    if is_there:
        verify.send(peer_name(BOOT), make_core().welcome)
        await daemon.connected.wait()
    await stop(serving)
    assert [received.message for received in verify.arriving()][-1:] == [Leave()] * is_there


async def test_a_text_is_told_that_the_verify_node_is_away_when_the_node_gives_up() -> None:
    network = MemoryNetwork()
    network.bind_verify()
    daemon, serving = start(network)
    daemon.core.connect_timeout_s = 0.5
    assert [getattr(item, "code", None) for item in await told(daemon, 1)] == ["verify_away"]
    with pytest.raises(TransportError, match="has been away"):
        await serving
