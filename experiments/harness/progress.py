"""Signs of life of a long loop, on standard error: which part of how many, how long so far, and how long still.

On a terminal the line stays in place and goes away at the end; elsewhere (a log, CI) there is a line every half minute
at most, so that what is quick says nothing.
"""

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

Part = TypeVar("Part")
EVERY_S = 30.0
"""Between two lines where they do not stay in place."""

CLEAR = "\r\x1b[K"


def parts(what: str, items: Iterable[Part]) -> Iterator[Part]:
    """The items, one after the other; what: the plural of what they are."""
    waiting, out = list(items), sys.stderr
    in_place = out.isatty()
    began = said = time.monotonic()
    try:
        for number, item in enumerate(waiting):
            now = time.monotonic()
            if in_place:
                print(CLEAR + line(what, number, len(waiting), now - began), end="", file=out, flush=True)
            elif now - said >= EVERY_S:
                print(line(what, number, len(waiting), now - began), file=out, flush=True)
                said = now
            yield item
    finally:
        if in_place:
            print(CLEAR, end="", file=out, flush=True)


def line(what: str, num_done: int, total: int, elapsed_s: float) -> str:
    """The rest is guessed from the parts that are done."""
    told = f"{what}: {num_done} of {total} done, {minutes(elapsed_s)} so far"
    return f"{told}, about {minutes(elapsed_s / num_done * (total - num_done))} to go" if num_done else told


def minutes(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // 60}:{whole % 60:02}"
