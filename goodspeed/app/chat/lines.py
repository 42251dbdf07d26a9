"""The user's turns: typed at a terminal, with an editable line, or read from standard input line by line."""

import contextlib
import io
import sys
from collections.abc import Iterator

from goodspeed.errors import ConfigError

PROMPT = "> "


def at_terminal() -> bool:
    """Whether standard input and output are a terminal."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


def typed() -> Iterator[str]:
    """Yields typed lines until Ctrl-D; Ctrl-C discards the current one."""
    with contextlib.suppress(ImportError):  # a Python without it has no history and no arrow keys
        import readline  # noqa: F401 (its import changes `input`)
    while True:
        try:
            yield input(PROMPT)
        except EOFError:
            print()
            return
        except KeyboardInterrupt:
            print()


def given() -> Iterator[str]:
    """Yields the lines of standard input; bytes that are no UTF-8 become replacement characters."""
    if sys.stdin is None:
        raise ConfigError("standard input is closed; give it one line for each turn")
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="replace")
    for line in sys.stdin:
        yield line.rstrip("\r\n")
