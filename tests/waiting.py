"""Waiting in tests: polls until a condition holds."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


async def until(holds: Callable[[], Found | None]) -> Found:
    """Polls until `holds` returns something true, and returns it; the test's own time limit ends a wait in vain."""
    while not (found := holds()):
        await asyncio.sleep(0.001)
    return found
