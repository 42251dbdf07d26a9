"""The connections of a draft node's links: one that cannot be made disturbs no other, and may be tried again."""

import asyncio

import pytest

from draft_node.core.verify_nodes import Address
from draft_node.process.connections import Connections
from goodspeed.errors import TransportError
from goodspeed.wire.channels import DraftChannel
from goodspeed.wire.endpoints import parse_endpoint
from goodspeed.wire.handshake import Heartbeat
from goodspeed.wire.zmq.authentication import ClientKeys, new_pair
from goodspeed.wire.zmq.opening_channels import connect_draft
from tests.memory_network import MemoryNetwork
from tests.waiting import arrival, run_async

BEAT = Heartbeat(b"aaaaaaaa")


@pytest.mark.parametrize("host", ["a..b", "x" * 64 + ".b"])
def test_a_name_that_is_none_is_a_named_error(host: str) -> None:
    with pytest.raises(TransportError, match="cannot be resolved"):
        parse_endpoint(f"tcp://{host}:1", True, "connecting")


@pytest.mark.parametrize("key", ["abc", "~" * 40])
def test_a_key_that_is_none_is_a_named_error(key: str) -> None:
    with pytest.raises(TransportError, match="address or key"):
        connect_draft("tcp://127.0.0.1:1", keys=ClientKeys(new_pair("a"), key))


@pytest.mark.parametrize("error", [TransportError("no such host"), OSError("too many open files")])
@run_async
async def test_a_channel_that_cannot_be_made_is_told_and_the_others_go_on(error: Exception) -> None:
    network = MemoryNetwork()
    verify = network.bind_verify()
    told: list[tuple[int, Exception]] = []

    async def connect(address: Address) -> DraftChannel:
        raise error

    connections = Connections(
        network.connect_draft(b"a"), connect, lambda *_: None, lambda *_: None, lambda *why: told.append(why)
    )
    async with asyncio.TaskGroup() as tasks:
        connections.begin(tasks)
        connections.connect(1, Address("tcp://b:1"))
        connections.put(1, BEAT)  # waits, and is dropped
        while not told:
            await asyncio.sleep(0)
        connections.put(0, BEAT)
        assert (await arrival(verify)).message == BEAT
        for task in connections._by_link[0].tasks:
            task.cancel()
    assert told == [(1, error)]
    assert connections.traffic.num_sent == 1


@run_async
async def test_the_traffic_of_a_closing_channel_stays_counted() -> None:
    network = MemoryNetwork()
    verify = network.bind_verify()

    async def connect(address: Address) -> DraftChannel:
        return network.connect_draft(b"b")

    connections = Connections(network.connect_draft(b"a"), connect, lambda *_: None, lambda *_: None, lambda *_: None)
    async with asyncio.TaskGroup() as tasks:
        connections.begin(tasks)
        connections.connect(1, Address("tcp://b:1"))
        connections.put(1, BEAT)
        await arrival(verify)
        connections.disconnect(1)
        assert connections.traffic.num_sent == 1
        for task in connections._by_link[0].tasks:
            task.cancel()
    assert connections.traffic.num_sent == 1
