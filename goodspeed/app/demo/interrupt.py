"""Work that a signal ends in good order: what it has opened is closed before the program ends.

Other than `command.until_signal`, a second signal does not end the program: it would leave processes behind.
"""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_interruptible(work: Coroutine[Any, Any, T]) -> T:
    """Runs it; KeyboardInterrupt after a signal, once everything is cleaned up. A second signal hurries that up."""

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
