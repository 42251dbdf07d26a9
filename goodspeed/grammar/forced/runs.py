"""Runs of forced bytes, and how those of a form's parts add up."""

from collections.abc import Iterable
from math import inf
from typing import NamedTuple

MAX_RUN = 1_024
"""Bytes that a form may force in a row: at most about 3 ms for each row of a mask."""


class Run(NamedTuple):
    """What a part of a form may force: bytes from its beginning, up to its end, and anywhere."""

    head: float
    tail: float
    longest: float
    whole: float | None  # all of it, where it may be forced or left out as a whole; None: it has a choice in it
    is_endless: bool = False  # whether it always has itself in it, so that no text satisfies it

    @property
    def is_long(self) -> bool:
        return self.longest > MAX_RUN


def fixed(num_bytes: float) -> Run:
    return Run(num_bytes, num_bytes, num_bytes, num_bytes)


def broken(num_bytes: float = 1) -> Run:
    """Returns the run of what has a choice in it, with so many bytes forced before and after that."""
    return Run(num_bytes, num_bytes, num_bytes, None)


NOTHING, UNBOUNDED, ENDLESS = fixed(0), fixed(inf), fixed(inf)._replace(is_endless=True)


def sequence(parts: Iterable[Run]) -> Run:
    """Returns the run of parts that follow each other."""
    found = NOTHING
    for part in parts:
        found = Run(
            found.head if found.whole is None else max(found.head, found.whole + part.head),
            part.tail if part.whole is None else max(part.tail, found.tail + part.whole),
            max(found.longest, part.longest, found.tail + part.head),
            None if found.whole is None or part.whole is None else found.whole + part.whole,
            found.is_endless or part.is_endless,
        )
    return found


def one_of(parts: Iterable[Run]) -> Run:
    """Returns the run of alternatives; one of them may be all that is left."""
    some = list(parts) or [NOTHING]
    return Run(
        max(each.head for each in some),
        max(each.tail for each in some),
        max(each.longest for each in some),
        max((each.whole for each in some if each.whole is not None), default=None),
        all(each.is_endless for each in some),
    )


def optional(part: Run) -> Run:
    return one_of((NOTHING, part))


def times(part: Run, num: int) -> Run:
    """Returns the run of a part that is repeated so often at least; once may be more than it has to be."""
    if num < 2 or part.whole is None:
        return sequence([part] * min(num, 2))
    return fixed(num * max(part.whole, part.longest))._replace(is_endless=part.is_endless)
