"""What a daemon says to the person who started it: a plain line on standard error for each thing that happens.

It stands beside the log, which is for programs and for details. Knows nothing about what happens.
"""

import logging
import sys
from collections.abc import Iterable
from typing import NamedTuple

from goodspeed.events import Seldom


class Sentence(NamedTuple):
    """What a state machine wants said: a text with %-places, the same for all of its kind, and what goes into them."""

    text: str
    values: tuple[object, ...]


class Status:
    """Says lines behind the command's name, as errors are said. `quiet` says nothing."""

    def __init__(self, name: str, *, quiet: bool = False) -> None:
        self._name = name
        self._quiet = quiet
        self._seldom = Seldom()

    def say(self, text: str, *values: object) -> None:
        """`text` with %-places for the values. Lines of one text are limited: no crowd of peers fills a disk."""
        record = logging.makeLogRecord({"name": self._name, "msg": text, "args": values})
        if self._quiet or not self._seldom.filter(record):
            return
        num_left_out = vars(record).get("num_left_out")
        more = f" (lines like this left out before: {num_left_out})" if num_left_out else ""
        print(f"{self._name}: {record.getMessage()}{more}", file=sys.stderr, flush=True)

    def say_all(self, sentences: Iterable[Sentence]) -> None:
        for sentence in sentences:
            self.say(sentence.text, *sentence.values)


QUIET = Status("", quiet=True)
"""For whoever builds a node without a person who waits for it."""
