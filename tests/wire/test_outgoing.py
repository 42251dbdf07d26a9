"""Messages leave in the order in which they were put, whoever is cancelled, and none survives its connection."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from goodspeed.errors import MessageTooLarge, TransportError
from goodspeed.wire.messages import Heartbeat, Leave, UpMessage
from goodspeed.wire.outgoing import Outgoing

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
    return channel, Outgoing(channel, lambda message, error: failed.append((message, error))), failed


def test_messages_of_several_tasks_leave_in_the_order_in_which_they_were_put() -> None:
    async def story() -> None:
        channel, outgoing, _ = make()
        channel.room.clear()
        tasks = []
        for message in (FIRST, SECOND, THIRD):
            outgoing.put(message)
            tasks.append(asyncio.create_task(outgoing.flush()))
            await asyncio.sleep(0)
        assert channel.taken == []
        channel.room.set()
        await asyncio.gather(*tasks)
        assert channel.taken == [FIRST, SECOND, THIRD]

    play(story())


def test_what_a_cancelled_task_was_about_to_send_is_sent_by_the_next_and_once() -> None:
    async def story() -> None:
        channel, outgoing, _ = make()
        channel.room.clear()
        outgoing.put(FIRST)
        cancelled = asyncio.create_task(outgoing.flush())
        await asyncio.sleep(0)
        outgoing.put(SECOND)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        channel.room.set()
        await outgoing.flush()
        assert channel.taken == [FIRST, SECOND]

    play(story())


def test_another_connection_begins_without_what_waited_for_the_one_before() -> None:
    async def story() -> None:
        channel, outgoing, _ = make()
        outgoing.put(FIRST)
        outgoing.reconnect()
        outgoing.put(SECOND)
        await outgoing.flush()
        assert channel.taken == ["reconnected", SECOND]

    play(story())


@pytest.mark.parametrize("error", [TransportError("busy"), MessageTooLarge("too large")])
def test_a_message_that_cannot_be_sent_is_told_of_and_the_next_is_tried(error: Exception) -> None:
    async def story() -> None:
        channel, outgoing, failed = make()
        channel.error = error
        outgoing.put(FIRST)
        outgoing.put(Leave())
        await outgoing.flush()
        assert failed == [(FIRST, error), (Leave(), error)]
        assert channel.taken == []

    play(story())
