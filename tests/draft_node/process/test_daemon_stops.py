"""A draft node that ends in good order says so, if anybody is there to hear it."""

import asyncio

import pytest

from draft_node.core.core import DraftCore
from draft_node.core.generation import Generation
from draft_node.core.link import VerifyLink
from draft_node.process.daemon import DraftDaemon
from goodspeed.errors import TransportError
from goodspeed.wire.channels import VerifyChannel
from goodspeed.wire.handshake import Hello, Leave
from goodspeed.wire.messages import Sampling
from tests.fakes import make_core, make_hello
from tests.memory_network import MemoryNetwork, peer_name
from tests.waiting import arrival, run_async

BOOT = b"aaaaaaaa"


def make_daemon(network: MemoryNetwork) -> DraftDaemon:
    """A draft node without a model: nobody asks it for a text."""
    link = VerifyLink.begin(make_hello(boot_id=BOOT), 3.0, asyncio.get_running_loop().time())
    return DraftDaemon(None, network.connect_draft(BOOT), DraftCore(link))


def start(network: MemoryNetwork) -> "tuple[DraftDaemon, asyncio.Task[None]]":
    daemon = make_daemon(network)
    return daemon, asyncio.create_task(daemon.serve())


async def stop(serving: "asyncio.Task[None]") -> None:
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving


def said(verify: VerifyChannel) -> list[type]:
    """Kinds of all that has come so far."""
    return [type(received.message) for received in verify.arriving()]


@run_async
async def test_leaves_with_a_word() -> None:
    network = MemoryNetwork()
    verify = network.bind_verify()
    daemon, serving = start(network)
    assert isinstance((await arrival(verify)).message, Hello)
    verify.send(peer_name(BOOT), make_core().welcome)
    await daemon.connected.wait()
    await stop(serving)
    assert said(verify)[-1] is Leave


@run_async
async def test_has_nothing_to_say_to_a_verify_node_that_is_away() -> None:
    network = MemoryNetwork()
    verify = network.bind_verify()
    _, serving = start(network)
    assert isinstance((await arrival(verify)).message, Hello)
    await stop(serving)
    assert said(verify) == []


@run_async
async def test_a_text_is_told_that_the_verify_node_is_away_when_the_node_gives_up() -> None:
    network = MemoryNetwork()
    network.bind_verify()
    daemon, serving = start(network)
    daemon.core.connect_timeout_s = 0.5
    told = [item async for item in daemon.generate(Generation(bytes(16), (1,), Sampling(), 5))]
    assert [getattr(item, "code", None) for item in told] == ["verify_away"]
    with pytest.raises(TransportError, match="has been away"):
        await serving
