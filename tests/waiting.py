"""How tests wait for what must come: they look again until it is there."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


async def until(holds: Callable[[], Found | None]) -> Found:
    """What it gives as soon as it is something; what never is ends the test by the test's own limit."""
    while not (found := holds()):
        await asyncio.sleep(0.001)
    return found
