"""Waiting in tests: polls until a condition holds, and tests that are coroutines, with a limit of time."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, TypeVar

from goodspeed.wire.channels import Received, VerifyChannel

Found = TypeVar("Found")

TIMEOUT_S = 60  # longest time of a whole test; nothing waits for it unless something is wrong


def run_async(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), TIMEOUT_S))

    return run


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
