"""Starts every command of the project, so that Ctrl-C while it is being imported leaves no traceback.

Imports nearly nothing itself: what it does holds for the imports that follow.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from goodspeed.serving.exit_statuses import INTERRUPTED


def begin() -> None:
    """Has Ctrl-C end this process at once, until the command begins what an interrupt has to end in good order.

    An exception would not do: some imports turn it into another one, and in a callback of the interpreter it is only
    printed.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not where a shell ignores it, for `command &`
        signal.signal(signal.SIGINT, _end)


@contextmanager
def running(*, daemon: bool) -> Iterator[None]:
    """Has Ctrl-C raise KeyboardInterrupt meanwhile, as Python does; a daemon handles it by itself once it serves."""
    was_started = signal.getsignal(signal.SIGINT) is _end
    if was_started and not daemon:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        if was_started and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _end)


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)
