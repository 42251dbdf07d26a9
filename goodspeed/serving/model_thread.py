"""A thread for a model's calls, so that they never block the event loop that owns the sockets."""

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
        """Runs the function on the thread; returns its result, or raises its exception."""
        self._newest = future = self._executor.submit(function)
        return await asyncio.wrap_future(future)

    def close(self, timeout_s: float | None = None) -> bool:
        """Waits for the running call, at most timeout_s; returns whether it ended. Blocks the event loop."""
        running = [self._newest] if self._newest is not None else []
        has_ended = not wait(running, timeout_s).not_done
        self._executor.shutdown(wait=has_ended, cancel_futures=True)
        return has_ended


def leave(status: int) -> int:
    """Returns the exit status; if a model's thread still runs, ends the process, since Python would wait for it."""
    if any(thread.name.startswith(NAME) for thread in threading.enumerate()):
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return status
