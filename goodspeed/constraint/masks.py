"""The masks of a batch in one call on several threads.

`Batch.prepare` does the work that needs the GIL, so what it returns disturbs no other Python thread. Trees, texts that
are still thinking and texts that broke their constraint are masked by their `Matcher` alone, with the same result.
"""

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from llguidance import LLExecutor
from numpy.typing import NDArray

from goodspeed.constraint.matcher import ANY, Matcher

MAX_THREADS = 4
"""Most threads that make masks. They take at most half of the cores, since a model runs at the same time."""


class Asked(NamedTuple):
    """A matcher with the arguments of `Matcher.allowed`."""

    matcher: Matcher
    output: Sequence[int]
    drafted: Sequence[int] = ()
    parents: Sequence[int] | None = None


class Batch:
    """Makes the masks of many texts at once. Not thread-safe."""

    def __init__(self) -> None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self._executor = LLExecutor(max(1, min(MAX_THREADS, cores // 2)))

    def prepare(self, asked: Sequence[Asked], num_words: int) -> Callable[[], list[NDArray[np.int32]]]:
        """Advances the matchers of chains to the end of their outputs, and returns a function that makes the masks.

        The function returns each matcher's allowed tokens [num_drafted + 1, num_words], as `Matcher.allowed` does. It
        holds the GIL only briefly, except for texts that are no chains. Until it has returned, no matcher may be used.
        """
        first_rows: list[int | None] = []  # of each chain; None: no chain
        num_rows = 0
        for one in asked:
            is_chain = one.parents is None or not one.drafted
            is_chain = is_chain and one.matcher.stands_within(one.output)
            first_rows.append(num_rows if is_chain else None)
            num_rows += len(one.drafted) + 1 if is_chain else 0
        rows = np.full((num_rows, num_words), ANY, np.int32)
        return lambda: self._make(list(zip(asked, first_rows, strict=True)), rows)

    def _make(self, pairs: list[tuple[Asked, int | None]], rows: NDArray[np.int32]) -> list[NDArray[np.int32]]:
        chains = [(one.matcher.inner, first, list(one.drafted)) for one, first in pairs if first is not None]
        drafts = [each for each in chains if each[2]]
        bases = [(inner, first) for inner, first, drafted in chains if not drafted]
        place = (rows.ctypes.data, rows.strides[0], len(rows))
        if drafts:
            self._executor.unsafe_compute_mask_ptr_with_draft_token(drafts, *place)
        if bases:
            self._executor.unsafe_compute_mask_ptr(bases, *place)
        return [
            rows[first : first + len(one.drafted) + 1]
            if first is not None and not one.matcher.is_spent
            else one.matcher.allowed(one.output, one.drafted, one.parents)
            for one, first in pairs
        ]
