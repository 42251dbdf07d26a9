"""Exit statuses of all commands, and signals that end a process while its command is being imported.

Imports almost nothing, so that `begin` takes effect before the slow imports.
"""

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType

FAILED = 1
USAGE = 2
UNWRITABLE = 74  # EX_IOERR
INTERRUPTED = 130  # 128 + SIGINT
UNREAD = 141  # 128 + SIGPIPE
TERMINATED = 143  # 128 + SIGTERM

STATUSES = f"""\
exit status:
  0    done
  {FAILED}    a named error: a model, a package, a port, a prompt or the network, in one line on standard error
  {USAGE}    wrong usage: an option, a value, or a file of settings or keys has to be changed
  {UNWRITABLE}   standard output cannot be written to
  {INTERRUPTED}  interrupted, with something unfinished
  {UNREAD}  the reader of standard output is gone"""


def begin() -> None:
    """Makes Ctrl-C end this process at once, until `running` begins.

    A KeyboardInterrupt would not work: some imports turn it into another exception, and the interpreter's callbacks
    only print it. A container's first process ends on SIGTERM, too, which Linux would ignore without a handler.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not if a shell ignores it (`command &`)
        signal.signal(signal.SIGINT, _end)
    if os.getpid() == 1 and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _end)


@contextmanager
def running(*, daemon: bool) -> Iterator[None]:
    """Makes Ctrl-C raise KeyboardInterrupt within the block; a container's first process still ends on SIGTERM.

    daemon: no change; daemons set their own handlers.
    """
    was_started = signal.getsignal(signal.SIGINT) is _end
    if was_started and not daemon:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        if was_started and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _end)


def end_at_once(numbers: Iterable[signal.Signals]) -> None:
    """Makes these signals end this process at once, also a container's first one, where Linux ignores the default."""
    for number in numbers:
        signal.signal(number, _end if os.getpid() == 1 else signal.SIG_DFL)


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(INTERRUPTED if number == signal.SIGINT else TERMINATED)
