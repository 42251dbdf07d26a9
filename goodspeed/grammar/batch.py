"""Masks of many sessions' chains in one call, without Python's lock and on several threads.

Whatever is no plain chain within its grammar (a tree, a text that is still thinking, one that has broken its form) is
left to its `Matcher`, with the same result. Knows nothing about sessions or logits.
"""

from collections.abc import Sequence
from os import cpu_count
from typing import NamedTuple

import numpy as np
from llguidance import LLExecutor
from numpy.typing import NDArray

from goodspeed.grammar.matcher import ANY, Matcher

MAX_THREADS = 4


class Asked(NamedTuple):
    """A text and its draft, as `Matcher.allowed` takes them."""

    matcher: Matcher
    output: Sequence[int]
    drafted: Sequence[int] = ()
    parents: Sequence[int] | None = None


class Batch:
    """`allowed` for many at once. Of one thread at a time."""

    def __init__(self) -> None:
        self._executor = LLExecutor(min(MAX_THREADS, cpu_count() or 1))

    def allowed(self, asked: Sequence[Asked], num_words: int) -> list[NDArray[np.int32]]:
        """Returns of each what `Matcher.allowed` would [num_drafted + 1, num_words]."""
        chains = [one for one in asked if one.drafted and one.parents is None and one.matcher.stands_within(one.output)]
        rows = np.full((sum(len(one.drafted) + 1 for one in chains), num_words), ANY, np.int32)
        calls, parts, first = [], dict[int, NDArray[np.int32]](), 0
        for one in chains:
            calls.append((one.matcher.inner, first, list(one.drafted)))
            parts[id(one.matcher)] = rows[first : first + len(one.drafted) + 1]
            first += len(one.drafted) + 1
        if calls:
            self._executor.unsafe_compute_mask_ptr_with_draft_token(calls, rows.ctypes.data, 4 * num_words, len(rows))
        found: list[NDArray[np.int32]] = []
        for one in asked:
            part = parts.get(id(one.matcher))
            if part is None or one.matcher.inner.is_error():
                part = one.matcher.allowed(one.output, one.drafted, one.parents)
            found.append(part)
        return found
