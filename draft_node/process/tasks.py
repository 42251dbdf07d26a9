"""Tasks that end together."""

import asyncio
from typing import Any


async def first_end(*tasks: "asyncio.Task[Any]") -> None:
    """Waits until one of the tasks ends; raises its error."""
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        if task.done():
            task.result()


async def stop(*tasks: "asyncio.Task[Any]") -> None:
    """Cancels the tasks and waits for their ends."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
