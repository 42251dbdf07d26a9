"""Runs a coroutine that a signal cancels, with all of its cleanup.

Other than `command.until_signal`, a second signal does not end the program: it would leave processes behind.
"""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_interruptible(work: Coroutine[Any, Any, T]) -> T:
    """Runs work; after a signal, cleans up and raises KeyboardInterrupt. A second signal hurries the cleanup."""

    async def guarded() -> T:
        task = asyncio.ensure_future(work)
        for number in SIGNALS:
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup means it
                asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        return await task

    try:
        return asyncio.run(guarded())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
