"""How long a regular expression becomes when its counted repetitions are written out, as `a{1000}{1000}` is.

llguidance writes repeated literals out, and does not count that. This reads no more of the syntax than it has to: what
it takes for longer than it is may be refused, nothing is taken for shorter. Knows nothing about llguidance.
"""

import re

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
    sizes, last, at = [0], 0, 0  # of each open group; of what a count would repeat, which is in them already
    while at < len(pattern):
        found = _COUNT.match(pattern, at)
        if found and last:
            added = last * (max(least_count(found), 1) - 1)
            sizes[-1] += added
            last += added
        elif pattern[at] == "(":
            sizes.append(0)
        elif pattern[at] == ")" and len(sizes) > 1:
            last = sizes.pop()
            sizes[-1] += last
        elif pattern[at] not in "*+?":
            last = 1
            sizes[-1] += 1
        check_written_out(sizes[-1] * times)
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
