"""Masks of many sessions' chains in one call, without Python's lock and on several threads.

What needs Python's lock is prepared before, so that `make` disturbs no other thread that runs Python beside it.

Whatever is no plain chain within its grammar (a tree, a text that is still thinking, one that has broken its form) is
left to its `Matcher`, with the same result. Knows nothing about sessions or logits.
"""

import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from llguidance import LLExecutor
from numpy.typing import NDArray

from goodspeed.grammar.matcher import ANY, Matcher

MAX_THREADS = 4
"""The most threads that make masks. They never take more than half of the cores, since a model runs beside them."""


class Asked(NamedTuple):
    """A text and its draft, as `Matcher.allowed` takes them."""

    matcher: Matcher
    output: Sequence[int]
    drafted: Sequence[int] = ()
    parents: Sequence[int] | None = None


class Batch:
    """Prepares masks of many at once. Of one thread at a time."""

    def __init__(self) -> None:
        self._executor = LLExecutor(max(1, min(MAX_THREADS, _num_cores() // 2)))

    def prepare(self, asked: Sequence[Asked], num_words: int) -> "PendingMasks":
        """Has the matchers of chains follow their texts, and returns what makes the masks.

        No matcher is to be used until then. One that must be compiled, since its session has lost its memory, is so
        there.
        """
        first_rows: list[int | None] = []
        num_rows = 0
        for one in asked:
            is_chain = one.parents is None or not one.drafted
            is_chain = is_chain and one.matcher.has_begun and one.matcher.stands_within(one.output)
            first_rows.append(num_rows if is_chain else None)
            num_rows += len(one.drafted) + 1 if is_chain else 0
        return PendingMasks(self._executor, asked, first_rows, np.full((num_rows, num_words), ANY, np.int32))


class PendingMasks(NamedTuple):
    """Masks that are about to be made."""

    executor: LLExecutor
    asked: Sequence[Asked]
    first_rows: Sequence[int | None]  # of each that is a chain the first of its rows
    rows: NDArray[np.int32]  # of all chains [num_rows, num_words]

    def make(self) -> list[NDArray[np.int32]]:
        """Returns of each what `Matcher.allowed` would [num_drafted + 1, num_words].

        Python's lock is held for a moment only, but for those that are no chains.
        """
        pairs = list(zip(self.asked, self.first_rows, strict=True))
        chains = [(one.matcher.inner, first, list(one.drafted)) for one, first in pairs if first is not None]
        drafts = [each for each in chains if each[2]]
        bases = [(inner, first) for inner, first, drafted in chains if not drafted]
        place = (self.rows.ctypes.data, self.rows.strides[0], len(self.rows))
        if drafts:
            self.executor.unsafe_compute_mask_ptr_with_draft_token(drafts, *place)
        if bases:
            self.executor.unsafe_compute_mask_ptr(bases, *place)
        return [
            self.rows[first : first + len(one.drafted) + 1]
            if first is not None and not one.matcher.is_spent
            else one.matcher.allowed(one.output, one.drafted, one.parents)
            for one, first in pairs
        ]


def _num_cores() -> int:
    """Returns how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
