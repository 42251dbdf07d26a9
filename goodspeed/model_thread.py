"""A thread of its own for a model, so that the event loop that owns the sockets is never blocked.

Knows nothing about what is run on it.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class ModelThread:
    """Runs one function at a time, off the event loop."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="model")

    async def run(self, function: Callable[[], T]) -> T:
        """The function's result; its exception is raised here."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, function)

    def close(self) -> None:
        """Waits for what is running; what has not begun never does. Blocks the event loop: call it last."""
        self._executor.shutdown(wait=True, cancel_futures=True)
