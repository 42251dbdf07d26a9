"""Reads lines of standard input as they arrive, without blocking the event loop or the process's exit.

A thread that waits for a line cannot be interrupted. So it is a daemon thread with its own file object, and a process
that stops does not wait for a line that never comes.
"""

import asyncio
import contextlib
import sys
import threading
from collections.abc import AsyncGenerator

from goodspeed.errors import PromptError

NAME = "-"
"""File name that stands for standard input."""

MAX_WAITING = 64
"""Most lines read ahead; beyond that the writer waits, as for any pipe."""


async def lines() -> AsyncGenerator[str, None]:
    """Yields every line without its line break; invalid UTF-8 becomes replacement characters.

    PromptError if standard input is closed or cannot be read.
    """
    if sys.stdin is None:  # descriptor 0 may be reused by now
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
