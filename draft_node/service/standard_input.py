"""Lines of standard input as they come, without holding up the event loop or the end of the process.

A thread that waits for a line cannot be interrupted, so it is a daemon thread with a file object of its own: when the
process is told to stop, nobody waits for a line that never comes.
"""

import asyncio
import contextlib
import sys
import threading
from collections.abc import AsyncGenerator

from goodspeed.errors import PromptError

NAME = "-"
"""The name of standard input where a file is asked for."""

MAX_WAITING = 64
"""Lines read ahead; whoever writes more waits, as with any pipe."""


async def lines() -> AsyncGenerator[str, None]:
    """Every line, without its end; bytes that are no UTF-8 become replacement characters.

    PromptError when standard input is closed or cannot be read.
    """
    if sys.stdin is None:  # its number may stand for something else by now
        raise PromptError("standard input is closed; give it prompts, or name a file with --prompts")
    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[str | OSError | None] = asyncio.Queue()
    room = threading.Semaphore(MAX_WAITING)

    def read() -> None:
        end = None
        with contextlib.suppress(RuntimeError):  # the event loop is closed: the process is ending
            try:
                with open(0, encoding="utf-8", errors="replace", closefd=False) as stream:
                    for line in stream:
                        room.acquire()
                        loop.call_soon_threadsafe(arrived.put_nowait, line.rstrip("\n"))
            except OSError as error:
                end = error
            finally:
                loop.call_soon_threadsafe(arrived.put_nowait, end)

    threading.Thread(target=read, name="standard input", daemon=True).start()
    while (line := await arrived.get()) is not None:
        if isinstance(line, OSError):
            raise PromptError(f"cannot read standard input: {line}") from line
        room.release()
        yield line
