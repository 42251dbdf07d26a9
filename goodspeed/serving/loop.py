"""Tools for both daemons' loops: a thread for model calls, tasks that end together, survival of repeated failures."""

import asyncio
import logging
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeAlias, TypeVar

from goodspeed.errors import NodeFailed

T = TypeVar("T")

NAME = "model"

MAX_FAILURES = 200
"""A node survives so many failures in a row. One client's sessions cause fewer
(`verify_node/core/fault_isolation.py`)."""

PAUSE_S = 0.05
"""Pause after each consecutive failure from the second on: a temporary fault has some seconds to pass."""

Undo: TypeAlias = Callable[[Exception], Mapping[str, object]]
"""Rolls back a failed step; returns fields for the log line."""


class ModelThread:
    """A thread that runs one function at a time, off the event loop."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=NAME)
        self._newest: Future[Any] | None = None

    async def run(self, function: Callable[[], T]) -> T:
        """Runs a function on the thread; returns its result or raises its exception."""
        self._newest = future = self._executor.submit(function)
        return await asyncio.wrap_future(future)

    def close(self, timeout_s: float | None = None) -> bool:
        """Waits for the running call, at most timeout_s; True if it ended. Blocks the event loop."""
        running = [self._newest] if self._newest is not None else []
        has_ended = not wait(running, timeout_s).not_done
        self._executor.shutdown(wait=has_ended, cancel_futures=True)
        return has_ended


async def first_end(*tasks: "asyncio.Task[Any]") -> None:
    """Waits until one of the tasks ends; raises its error."""
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        if task.done():
            task.result()


async def wait_at_most(timeout_s: float, event: asyncio.Event) -> None:
    """Waits until the event is set, or for timeout_s.

    `asyncio.wait_for` of Python 3.11 loses a cancellation at the moment at which the event is set.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()


async def stop(*tasks: "asyncio.Task[Any]") -> None:
    """Cancels the tasks and waits for their ends."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def leave(status: int) -> int:
    """Returns the exit status. Ends the process if a model thread still runs, since Python would wait for it."""
    if any(thread.name.startswith(NAME) for thread in threading.enumerate()):
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return status


class Failures:
    """Counts consecutive failures of a step that a loop repeats."""

    def __init__(self, logger: logging.Logger, what: str, ends: tuple[type[Exception], ...] = ()) -> None:
        """what: name of the step, with its article. ends: exceptions that a retry cannot cure, raised at once."""
        self._logger = logger
        self._what = what
        self._ends: tuple[type[Exception], ...] = (NodeFailed, *ends)
        self._num_in_a_row = 0

    @asynccontextmanager
    async def survived(self, undo: Undo | None = None) -> AsyncIterator[None]:
        """Logs an exception of the block and suppresses it, except those in `ends`.

        Pauses after each consecutive failure from the second on. Raises NodeFailed after more than MAX_FAILURES.
        """
        try:
            yield
        except self._ends:
            raise
        except Exception as error:
            self._failed(error, undo(error) if undo is not None else {})
            if self._num_in_a_row > 1:
                await asyncio.sleep(PAUSE_S)
        else:
            self._num_in_a_row = 0

    async def repeat(self, step: Callable[[], None], period_s: float) -> None:
        """Repeats the step until cancelled, with a pause of period_s after each."""
        while True:
            async with self.survived():
                step()
            await asyncio.sleep(period_s)

    def _failed(self, error: Exception, extra: Mapping[str, object]) -> None:
        self._num_in_a_row += 1
        self._logger.error(f"{self._what} failed", exc_info=error, extra=extra)
        if self._num_in_a_row > MAX_FAILURES:
            times = f"{self._what} failed {self._num_in_a_row} times in a row"
            raise NodeFailed(f"{times}, most recently with {type(error).__name__}: {error}; see the log") from error
