"""What fails in a daemon's loop: it is logged, and only too many failures in a row end the node."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from logging import Logger
from typing import TypeAlias

from goodspeed.errors import NodeFailed

MAX_FAILURES = 100
"""Failures in a row that a node survives: more are no single session's or peer's fault."""

PAUSE_S = 0.05
"""After a second failure in a row, and each further one: a passing fault has some seconds to pass."""

Undo: TypeAlias = Callable[[Exception], Mapping[str, object]]
"""Makes good what a step left half done; returns what the log is to say of it."""


def _nothing(_: Exception) -> Mapping[str, object]:
    return {}


class Failures:
    """Counts the failures in a row of something that a loop does again and again."""

    def __init__(self, logger: Logger, what: str, ends: tuple[type[Exception], ...] = ()) -> None:
        """what: is tried, as a noun with its article. ends: the exceptions that no further try could mend."""
        self._logger = logger
        self._what = what
        self._ends: tuple[type[Exception], ...] = (NodeFailed, *ends)
        self._num_in_a_row = 0

    @asynccontextmanager
    async def survived(self, undo: Undo = _nothing) -> AsyncIterator[None]:
        """Has a step that is tried within this block fail without an exception, but for those that end the node.

        After a second failure in a row, and each further one, it waits. Raises NodeFailed after too many.
        """
        try:
            yield
        except self._ends:
            raise
        except Exception as error:
            self._failed(error, undo(error))
            await self._pause()
        else:
            self._num_in_a_row = 0

    def _failed(self, error: Exception, extra: Mapping[str, object]) -> None:
        self._num_in_a_row += 1
        self._logger.error(f"{self._what} failed", exc_info=error, extra=extra)
        if self._num_in_a_row > MAX_FAILURES:
            times = f"{self._what} failed {self._num_in_a_row} times in a row"
            raise NodeFailed(f"{times}, at last with {type(error).__name__}: {error}; see the log") from error

    async def _pause(self) -> None:
        if self._num_in_a_row > 1:
            await asyncio.sleep(PAUSE_S)
