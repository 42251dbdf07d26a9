"""Messages leave in the order in which they were put, whoever is cancelled, and none survives its connection."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from draft_node.channels import SendQueue
from goodspeed.errors import MessageTooLarge, TransportError
from goodspeed.wire.handshake import Heartbeat, Leave
from goodspeed.wire.messages import UpMessage

FIRST, SECOND, THIRD = (Heartbeat(name.rjust(8).encode()) for name in ("first", "second", "third"))


class Channel:
    """Takes messages while it has room."""

    endpoint = "here"

    def __init__(self) -> None:
        self.room = asyncio.Event()
        self.room.set()
        self.taken: list[UpMessage | str] = []
        self.error: Exception | None = None

    async def send(self, message: UpMessage) -> None:
        await self.room.wait()
        if self.error is not None:
            raise self.error
        self.taken.append(message)

    async def reconnect(self) -> None:
        self.taken.append("reconnected")


def play(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 60))


def make() -> tuple[Channel, Any, list[tuple[UpMessage, Exception]]]:
    failed: list[tuple[UpMessage, Exception]] = []
    channel: Any = Channel()
    return channel, SendQueue(channel, lambda message, error: failed.append((message, error))), failed


async def turns(number: int = 20) -> None:
    """Lets every task that can go on do so."""
    for _ in range(number):
        await asyncio.sleep(0)


def test_messages_leave_in_the_order_in_which_they_were_put_and_nobody_waits_for_a_busy_line() -> None:
    async def story() -> None:
        channel, queue, _ = make()
        channel.room.clear()
        running = asyncio.create_task(queue.run())
        for message in (FIRST, SECOND, THIRD):
            queue.put(message)
            await turns()
        assert channel.taken == []
        channel.room.set()
        await turns()
        assert channel.taken == [FIRST, SECOND, THIRD]
        running.cancel()

    play(story())


def test_a_reconnection_does_not_wait_for_a_message_that_the_old_connection_does_not_take() -> None:
    async def story() -> None:
        channel, queue, failed = make()
        channel.room.clear()
        running = asyncio.create_task(queue.run())
        queue.put(FIRST)
        await turns()
        queue.reconnect()
        queue.put(SECOND)
        await turns()
        assert channel.taken == ["reconnected"]
        channel.room.set()
        await turns()
        assert channel.taken == ["reconnected", SECOND]
        assert failed == []
        running.cancel()

    play(story())


def test_what_is_cleared_is_not_sent_later() -> None:
    async def story() -> None:
        channel, queue, _ = make()
        channel.room.clear()
        running = asyncio.create_task(queue.run())
        queue.put(FIRST)
        queue.put(SECOND)
        await turns()
        queue.clear()
        await turns()
        channel.room.set()
        queue.put(THIRD)
        await turns()
        assert channel.taken == [THIRD]
        running.cancel()

    play(story())


def test_an_error_that_cannot_be_handled_ends_the_task() -> None:
    async def story() -> None:
        channel: Any = Channel()
        channel.error = MessageTooLarge("too large")

        def failed(message: UpMessage, error: Exception) -> None:
            raise error

        queue = SendQueue(channel, failed)
        queue.put(FIRST)
        with pytest.raises(MessageTooLarge):
            await queue.run()

    play(story())


def test_another_connection_begins_without_what_waited_for_the_one_before() -> None:
    async def story() -> None:
        channel, queue, _ = make()
        queue.put(FIRST)
        queue.reconnect()
        queue.put(SECOND)
        await queue.flush()
        assert channel.taken == ["reconnected", SECOND]

    play(story())


@pytest.mark.parametrize("error", [TransportError("busy"), MessageTooLarge("too large")])
def test_a_message_that_cannot_be_sent_is_told_of_and_the_next_is_tried(error: Exception) -> None:
    async def story() -> None:
        channel, queue, failed = make()
        channel.error = error
        queue.put(FIRST)
        queue.put(Leave())
        await queue.flush()
        assert failed == [(FIRST, error), (Leave(), error)]
        assert channel.taken == []

    play(story())
