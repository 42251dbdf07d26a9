"""Waiting in tests: polls until a condition holds."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from goodspeed.wire.channels import Received, VerifyChannel

Found = TypeVar("Found")

TIMEOUT_S = 60  # longest time of a test that is a coroutine; nothing waits for it unless something is wrong


async def until(holds: Callable[[], Found | None]) -> Found:
    """Polls until `holds` returns something true, and returns it; the test's own time limit ends a wait in vain."""
    while not (found := holds()):
        await asyncio.sleep(0.001)
    return found


async def arrival(verify: VerifyChannel) -> Received:
    """Returns the next message of any draft node, or the error from decoding it."""
    while True:
        for received in verify.arriving():
            return received
        await verify.readable()
