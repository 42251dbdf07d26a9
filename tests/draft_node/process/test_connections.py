"""Messages leave in order, and none survives its connection; one that cannot be made disturbs no other."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from draft_node.core.verify_nodes import Address
from draft_node.process.connections import Connection, Connections, ConnectTo
from goodspeed.errors import MessageTooLarge, TransportError
from goodspeed.wire.endpoints import parse_endpoint
from goodspeed.wire.handshake import Heartbeat, Leave
from goodspeed.wire.messages import UpMessage
from goodspeed.wire.zmq.authentication import ClientKeys, new_pair
from goodspeed.wire.zmq.opening_channels import connect_draft
from tests.memory_network import MemoryNetwork
from tests.waiting import arrival

FIRST, SECOND, THIRD = (Heartbeat(name.rjust(8).encode()) for name in ("first", "second", "third"))


class Channel:
    """Takes messages of its connection while it has room; with `busy` it has none, and the connection is at work."""

    endpoint = "here"

    def __init__(self, *, busy: bool = False) -> None:
        self.room = asyncio.Event()
        self.transport = self  # its own
        self.taken: list[UpMessage | str] = []
        self.failed: list[tuple[UpMessage, Exception]] = []
        self.error: Exception | None = None
        this: Any = self
        self.connection = Connection(this, lambda message, error: self.failed.append((message, error)))
        if busy:
            self.running = asyncio.create_task(self.connection.run())
        else:
            self.room.set()

    async def send(self, message: UpMessage) -> None:
        await self.room.wait()
        if self.error is not None:
            raise self.error
        self.taken.append(message)

    def rebuild(self) -> None:
        if self.error is not None:
            raise self.error
        self.taken.append("reconnected")


async def turns(number: int = 20) -> None:
    """Lets every task that can go on do so."""
    for _ in range(number):
        await asyncio.sleep(0)


async def test_messages_leave_in_the_order_in_which_they_were_put_and_nobody_waits_for_a_busy_line() -> None:
    channel = Channel(busy=True)
    for message in (FIRST, SECOND, THIRD):
        channel.connection.put(message)
        await turns()
    assert channel.taken == []
    channel.room.set()
    await turns()
    assert channel.taken == [FIRST, SECOND, THIRD]


async def test_a_reconnection_drops_what_waits_and_the_message_that_the_old_connection_does_not_take() -> None:
    channel = Channel(busy=True)
    channel.connection.put(FIRST)
    channel.connection.put(THIRD)
    await turns()
    channel.connection.reconnect()
    channel.connection.put(SECOND)
    await turns()
    assert channel.taken == ["reconnected"]
    channel.room.set()
    await turns()
    assert channel.taken == ["reconnected", SECOND]
    assert channel.failed == []


async def test_an_error_that_cannot_be_handled_ends_the_task() -> None:
    channel: Any = Channel()
    channel.error = MessageTooLarge("too large")
    connection = Connection(channel, Mock(side_effect=channel.error))
    connection.put(FIRST)
    with pytest.raises(MessageTooLarge):
        await connection.run()


async def test_a_connection_that_cannot_be_replaced_goes_on() -> None:
    channel = Channel()
    channel.error = TransportError("too many open files")
    channel.connection.reconnect()
    await channel.connection.flush()
    channel.error = None
    channel.connection.put(FIRST)
    await channel.connection.flush()
    assert (channel.taken, channel.failed) == ([FIRST], [])


@pytest.mark.parametrize("error", [TransportError("busy"), MessageTooLarge("too large")])
async def test_a_message_that_cannot_be_sent_is_told_of_and_the_next_is_tried(error: Exception) -> None:
    channel = Channel()
    channel.error = error
    channel.connection.put(FIRST)
    channel.connection.put(Leave())
    await channel.connection.flush()
    assert channel.failed == [(FIRST, error), (Leave(), error)]
    assert channel.taken == []


# -- the connections of all links --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("host", "key"), [("a..b", "abc"), ("x" * 64 + ".b", "~" * 40)])
def test_a_name_or_a_key_that_is_none_is_a_named_error(host: str, key: str) -> None:
    with pytest.raises(TransportError, match="cannot be resolved"):
        parse_endpoint(f"tcp://{host}:1", True, "connecting")
    with pytest.raises(TransportError, match="address or key"):
        connect_draft("tcp://127.0.0.1:1", keys=ClientKeys(new_pair("a"), key))


@asynccontextmanager
async def two_links(
    network: MemoryNetwork, connect: ConnectTo, failed: Any = None
) -> AsyncGenerator[Connections, None]:
    """Link 0 is there; link 1 is asked for with `connect`, and has a message to send."""
    found = Connections(network.connect_draft(b"a"), connect, lambda *_: None, lambda *_: None, failed)
    async with asyncio.TaskGroup() as tasks:
        found.begin(tasks)
        found.connect(1, Address("tcp://b:1"))
        found.put(1, FIRST)
        yield found
        for task in found._by_link[0].tasks:
            task.cancel()


@pytest.mark.parametrize("error", [TransportError("no such host"), OSError("too many open files")])
async def test_a_channel_that_cannot_be_made_is_told_and_the_others_go_on(error: Exception) -> None:
    network, told = MemoryNetwork(), list[tuple[int, Exception]]()
    verify = network.bind_verify()
    async with two_links(network, AsyncMock(side_effect=error), lambda *why: told.append(why)) as connections:
        while not told:  # the message waits, and is dropped
            await asyncio.sleep(0)
        connections.put(0, SECOND)
        assert (await arrival(verify)).message == SECOND
    assert told == [(1, error)]
    assert connections.traffic.num_sent == 1


async def test_the_traffic_of_a_closing_channel_stays_counted() -> None:
    network = MemoryNetwork()
    verify = network.bind_verify()
    async with two_links(network, AsyncMock(return_value=network.connect_draft(b"b"))) as connections:
        await arrival(verify)
        connections.disconnect(1)
        assert connections.traffic.num_sent == 1
    assert connections.traffic.num_sent == 1
