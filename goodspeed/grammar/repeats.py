"""How long a regular expression becomes when its counted repetitions are written out, as `a{1000}{1000}` is.

llguidance writes repeated literals out, and does not count that. This reads no more of the syntax than it has to: what
it takes for longer than it is may be refused, nothing is taken for shorter. Knows nothing about llguidance.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from goodspeed.errors import GrammarError

MAX_WRITTEN_OUT = 20_000
"""Characters and classes of a pattern, with each repetition at its least count: about 30 ms and 10 MB."""

_COUNT = re.compile(r"\{\s*(\d+)\s*(?:,\s*\d*\s*)?\}")
_OPENING = re.compile(r"\[\^?\]?")
_BLANKS = re.compile(r"\(\?[A-Za-z-]*x[A-Za-z-]*[:)]")
"""Turns on a syntax in which counts could be spelled in several ways."""


def check_repeats(pattern: str, times: int = 1) -> None:
    """Raises GrammarError for a pattern that is too long when it is written out; times: as often as it is repeated."""
    if _BLANKS.search(pattern):
        raise GrammarError("the flag x of a pattern is not taken; write it without blanks that do not count")
    for size in _sizes(pattern):
        check_written_out(size.written_out * times)


def longest_way(pattern: str) -> int:
    """Returns the most characters and classes that a text passes, each repetition at its least count, or once."""
    return max((size.way for size in _sizes(pattern)), default=0)


class _Size(NamedTuple):
    """Characters and classes of a pattern, or a group of it: of all alternatives, and on the longest way through."""

    written_out: int = 0
    way: int = 0
    other_ways: int = 0  # of the alternatives before

    def plus(self, written_out: int, way: int) -> "_Size":
        return self._replace(written_out=self.written_out + written_out, way=self.way + way)

    @property
    def longest(self) -> int:
        return max(self.way, self.other_ways)


def _sizes(pattern: str) -> Iterator[_Size]:
    """Returns the sizes of the groups that are open at each part."""
    open_groups, last, at = [_Size()], _Size(), 0  # last: what a count would repeat, which is in its group already
    while at < len(pattern):
        found = _COUNT.match(pattern, at)
        if found and last.written_out:
            more = max(least_count(found), 1) - 1
            open_groups[-1] = open_groups[-1].plus(last.written_out * more, last.way * more)
            last = last.plus(last.written_out * more, last.way * more)
        elif pattern[at] == "(":
            open_groups.append(_Size())
        elif pattern[at] == ")" and len(open_groups) > 1:
            group = open_groups.pop()
            last = _Size(group.written_out, group.longest)
            open_groups[-1] = open_groups[-1].plus(last.written_out, last.way)
        elif pattern[at] == "|":
            group, last = open_groups[-1], _Size(1, 0)
            open_groups[-1] = _Size(group.written_out + 1, 0, group.longest)
        elif pattern[at] not in "*+?":
            last = _Size(1, 1)
            open_groups[-1] = open_groups[-1].plus(1, 1)
        yield open_groups[-1]
        at = found.end() if found else _after(pattern, at)


def check_written_out(num_chars: int) -> None:
    """Raises GrammarError for too many."""
    if num_chars > MAX_WRITTEN_OUT:
        raise GrammarError(f"counted repetitions make more than {MAX_WRITTEN_OUT} characters; lower the counts")


def repeated(grammar: str) -> int:
    """Returns how often the counts in the rules of a grammar repeat something together, at most."""
    product = 1
    for found in _COUNT.finditer(grammar):
        product = min(product * max(least_count(found), 1), MAX_WRITTEN_OUT + 1)
    return product


def least_count(found: re.Match[str]) -> int:
    return int(found[1][:9])


def _after(pattern: str, at: int) -> int:
    """Where the next part begins after the one here: a character, an escaped one, or a class with those within it."""
    if pattern[at] != "[":
        return at + 1 + (pattern[at] == "\\")
    depth = 0
    while at < len(pattern):
        if pattern[at] == "\\":
            at += 2
        elif opening := _OPENING.match(pattern, at):
            depth, at = depth + 1, opening.end()
        else:
            depth, at = depth - (pattern[at] == "]"), at + 1
        if depth == 0:
            break
    return at
