"""Prints a command's status lines on standard error, for the person who started it.

The log is separate: it is for programs and for details.
"""

import logging
import sys
from collections.abc import Iterable
from typing import NamedTuple

from goodspeed.serving.events import RateLimitFilter


class Sentence(NamedTuple):
    """One status line: a %-format and its values. Lines are rate-limited by format."""

    text: str
    values: tuple[object, ...]


class Reporter:
    """Prints lines after the command's name, like errors. With `quiet` it prints nothing."""

    def __init__(self, name: str, *, quiet: bool = False) -> None:
        self._name = name
        self._quiet = quiet
        self._rate_limit = RateLimitFilter()

    def say(self, text: str, *values: object) -> None:
        """Prints a line; `text` is a %-format. Lines of one format are rate-limited, so peers cannot fill a disk."""
        record = logging.makeLogRecord({"name": self._name, "msg": text, "args": values})
        if self._quiet or not self._rate_limit.filter(record):
            return
        num_left_out = vars(record).get("num_left_out")
        more = f" (lines like this left out before: {num_left_out})" if num_left_out else ""
        print(f"{self._name}: {record.getMessage()}{more}", file=sys.stderr, flush=True)

    def say_all(self, sentences: Iterable[Sentence]) -> None:
        for sentence in sentences:
            self.say(sentence.text, *sentence.values)


QUIET = Reporter("", quiet=True)
"""Prints nothing; for nodes built in tests and benchmarks."""
