"""Messages leave in the order in which they were put, whoever is cancelled, and none survives its connection."""

import asyncio
from typing import Any

import pytest

from draft_node.process.connections import Connection
from goodspeed.errors import MessageTooLarge, TransportError
from goodspeed.wire.handshake import Heartbeat, Leave
from goodspeed.wire.messages import UpMessage
from tests.waiting import run_async

FIRST, SECOND, THIRD = (Heartbeat(name.rjust(8).encode()) for name in ("first", "second", "third"))


class Channel:
    """Takes messages while it has room."""

    endpoint = "here"

    def __init__(self) -> None:
        self.room = asyncio.Event()
        self.room.set()
        self.transport = self  # its own
        self.taken: list[UpMessage | str] = []
        self.error: Exception | None = None
        self.running: asyncio.Task[None] | None = None

    async def send(self, message: UpMessage) -> None:
        await self.room.wait()
        if self.error is not None:
            raise self.error
        self.taken.append(message)

    def rebuild(self) -> None:
        if self.error is not None:
            raise self.error
        self.taken.append("reconnected")


def make() -> tuple[Channel, Any, list[tuple[UpMessage, Exception]]]:
    failed: list[tuple[UpMessage, Exception]] = []
    channel: Any = Channel()
    return channel, Connection(channel, lambda message, error: failed.append((message, error))), failed


def busy() -> tuple[Channel, Any, list[tuple[UpMessage, Exception]]]:
    """The same at work, on a line without room."""
    channel, connection, failed = make()
    channel.room.clear()
    channel.running = asyncio.create_task(connection.run())
    return channel, connection, failed


async def turns(number: int = 20) -> None:
    """Lets every task that can go on do so."""
    for _ in range(number):
        await asyncio.sleep(0)


@run_async
async def test_messages_leave_in_the_order_in_which_they_were_put_and_nobody_waits_for_a_busy_line() -> None:
    channel, connection, _ = busy()
    for message in (FIRST, SECOND, THIRD):
        connection.put(message)
        await turns()
    assert channel.taken == []
    channel.room.set()
    await turns()
    assert channel.taken == [FIRST, SECOND, THIRD]


@run_async
async def test_a_reconnection_does_not_wait_for_a_message_that_the_old_connection_does_not_take() -> None:
    channel, connection, failed = busy()
    connection.put(FIRST)
    await turns()
    connection.reconnect()
    connection.put(SECOND)
    await turns()
    assert channel.taken == ["reconnected"]
    channel.room.set()
    await turns()
    assert channel.taken == ["reconnected", SECOND]
    assert failed == []


@run_async
async def test_an_error_that_cannot_be_handled_ends_the_task() -> None:
    channel: Any = Channel()
    channel.error = MessageTooLarge("too large")

    def failed(message: UpMessage, error: Exception) -> None:
        raise error

    connection = Connection(channel, failed)
    connection.put(FIRST)
    with pytest.raises(MessageTooLarge):
        await connection.run()


@run_async
async def test_another_connection_begins_without_what_waited_for_the_one_before() -> None:
    channel, connection, _ = make()
    connection.put(FIRST)
    connection.reconnect()
    connection.put(SECOND)
    await connection.flush()
    assert channel.taken == ["reconnected", SECOND]


@run_async
async def test_a_connection_that_cannot_be_replaced_goes_on() -> None:
    channel, connection, failed = make()
    channel.error = TransportError("too many open files")
    connection.reconnect()
    await connection.flush()
    channel.error = None
    connection.put(FIRST)
    await connection.flush()
    assert channel.taken == [FIRST]
    assert failed == []


@pytest.mark.parametrize("error", [TransportError("busy"), MessageTooLarge("too large")])
@run_async
async def test_a_message_that_cannot_be_sent_is_told_of_and_the_next_is_tried(error: Exception) -> None:
    channel, connection, failed = make()
    channel.error = error
    connection.put(FIRST)
    connection.put(Leave())
    await connection.flush()
    assert failed == [(FIRST, error), (Leave(), error)]
    assert channel.taken == []
