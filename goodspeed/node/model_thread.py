"""A thread of its own for a model, so that the event loop that owns the sockets is never blocked.

Knows nothing about what is run on it.
"""

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

T = TypeVar("T")

NAME = "model"


class ModelThread:
    """Runs one function at a time, off the event loop."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=NAME)
        self._newest: Future[Any] | None = None

    async def run(self, function: Callable[[], T]) -> T:
        """The function's result; its exception is raised here."""
        self._newest = future = self._executor.submit(function)
        return await asyncio.wrap_future(future)

    def close(self, timeout_s: float | None = None) -> bool:
        """Waits for what is running, at most so long: whether it has ended. Blocks the event loop: call it last."""
        running = [self._newest] if self._newest is not None else []
        has_ended = not wait(running, timeout_s).not_done
        self._executor.shutdown(wait=has_ended, cancel_futures=True)
        return has_ended


def leave(status: int) -> int:
    """The exit status. Where a model hangs the process ends here: Python would wait for it."""
    if any(thread.name.startswith(NAME) for thread in threading.enumerate()):
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return status
