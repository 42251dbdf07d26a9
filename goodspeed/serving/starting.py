"""The exit statuses of every command, and its start: Ctrl-C while it is being imported leaves no traceback.

Imports nearly nothing itself: what it does holds for the imports that follow.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

FAILED = 1
USAGE = 2
UNWRITABLE = 74  # EX_IOERR
INTERRUPTED = 130  # 128 + SIGINT
UNREAD = 141  # 128 + SIGPIPE

STATUSES = f"""\
exit status:
  0    done
  {FAILED}    a named error: a model, a port, a prompt or the network, in one line on standard error
  {USAGE}    wrong usage: an option, a value, or a file of settings or keys has to be changed
  {UNWRITABLE}   standard output cannot be written to
  {INTERRUPTED}  interrupted, with something unfinished
  {UNREAD}  whoever read standard output is gone"""


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
