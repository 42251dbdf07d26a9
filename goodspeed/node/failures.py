"""What fails in a daemon's loop: it is logged, and only too many failures in a row end the node.

Knows nothing about what is tried, nor about what becomes of it.
"""

import asyncio
from logging import Logger

from goodspeed.errors import NodeFailed

MAX_FAILURES = 100
"""Failures in a row that a node survives: more are no single session's or peer's fault."""

PAUSE_S = 0.05
"""After a second failure in a row, and each further one: a passing fault has some seconds to pass."""


class Failures:
    """Counts the failures in a row of something that a loop does again and again."""

    def __init__(self, logger: Logger, what: str) -> None:
        """what: is tried, as a noun with its article."""
        self._logger = logger
        self._what = what
        self._num_in_a_row = 0

    def worked(self) -> None:
        """It did not fail this time."""
        self._num_in_a_row = 0

    def failed(self, error: Exception, **extra: object) -> None:
        """It failed: to be called while the exception is handled. Raises NodeFailed after too many in a row."""
        self._num_in_a_row += 1
        self._logger.error(f"{self._what} failed", exc_info=error, extra=extra)
        if self._num_in_a_row > MAX_FAILURES:
            times = f"{self._what} failed {self._num_in_a_row} times in a row"
            raise NodeFailed(f"{times}, at last with {type(error).__name__}: {error}; see the log") from error

    async def pause(self) -> None:
        """Waits before it is tried again, unless this was the first failure."""
        if self._num_in_a_row > 1:
            await asyncio.sleep(PAUSE_S)
