"""Lines of standard input as they come, without holding up the event loop or the end of the process.

A thread that waits for a line cannot be interrupted, so it is a daemon thread with a file object of its own: when the
process is told to stop, nobody waits for a line that never comes. Knows nothing about prompts.
"""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator

NAME = "-"
"""What stands for standard input where a file is asked for."""


async def lines() -> AsyncIterator[str]:
    """Every line, without its end; bytes that are no UTF-8 become replacement characters."""
    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[str | None] = asyncio.Queue()

    def read() -> None:
        with contextlib.suppress(RuntimeError):  # the event loop is closed: the process is ending
            with open(0, encoding="utf-8", errors="replace", closefd=False) as stream:
                for line in stream:
                    loop.call_soon_threadsafe(arrived.put_nowait, line.rstrip("\n"))
            loop.call_soon_threadsafe(arrived.put_nowait, None)

    threading.Thread(target=read, name="standard input", daemon=True).start()
    while (line := await arrived.get()) is not None:
        yield line
