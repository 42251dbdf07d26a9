"""The matchers of a node's sessions, and the masks of a batch in one call on several threads.

`prepare` does the work that needs the GIL, so `make` disturbs no other Python thread. Trees, texts that are still
thinking and texts that broke their constraint are masked by their `Matcher` alone, with the same result.
"""

import os
from collections import OrderedDict
from collections.abc import Container, Sequence
from typing import NamedTuple

import numpy as np
from llguidance import LLExecutor
from numpy.typing import NDArray

from goodspeed.constraint.compiling import Constraints
from goodspeed.constraint.matcher import ANY, Matcher
from goodspeed.wire.generation import Constraint

MAX_THREADS = 4
"""Most threads that make masks. They take at most half of the cores, since a model runs at the same time."""


class Asked(NamedTuple):
    """A matcher with the arguments of `Matcher.allowed`."""

    matcher: Matcher
    output: Sequence[int]
    drafted: Sequence[int] = ()
    parents: Sequence[int] | None = None


class Batch:
    """Prepares the masks of many texts at once. Not thread-safe."""

    def __init__(self) -> None:
        self._executor = LLExecutor(max(1, min(MAX_THREADS, _num_cores() // 2)))

    def prepare(self, asked: Sequence[Asked], num_words: int) -> "PendingMasks":
        """Advances the matchers of chains to the end of their outputs, and returns the pending masks.

        No matcher may be used until `make` has returned. `make` compiles matchers that were evicted.
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
    """Masks that `make` computes."""

    executor: LLExecutor
    asked: Sequence[Asked]
    first_rows: Sequence[int | None]  # first row of each chain; None: no chain
    rows: NDArray[np.int32]  # of all chains [num_rows, num_words]

    def make(self) -> list[NDArray[np.int32]]:
        """Returns each matcher's allowed tokens [num_drafted + 1, num_words], as `Matcher.allowed` does.

        Holds the GIL only briefly, except for texts that are no chains.
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
    """Counts the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


MAX_MATCHERS = 1024
"""Most sessions with a cached matcher; the least recently used is evicted first."""


class Matchers:
    """Caches each session's matcher. After an eviction a new matcher reads the text again. Not thread-safe."""

    def __init__(self, constraints: Constraints) -> None:
        self.constraints = constraints
        self._kept: OrderedDict[bytes, tuple[Constraint, tuple[int, ...], Matcher]] = OrderedDict()

    def of(self, session_id: bytes, constraint: Constraint, stop_ids: Sequence[int]) -> Matcher:
        """Returns the session's matcher, at any position; ConstraintError if the constraint does not compile.

        Compiles nothing if the session holds its compiled constraint (`Constraints.hold`), also if only its stop_ids
        changed.
        """
        known, known_ids, matcher = self._kept.get(session_id, (None, (), None))
        if matcher is None or known != constraint:
            matcher = Matcher(self.constraints.of(session_id, constraint), constraint.after, stop_ids)
        elif known_ids != tuple(stop_ids):
            matcher.stop_at(stop_ids)
        self._kept[session_id] = constraint, tuple(stop_ids), matcher
        self._kept.move_to_end(session_id)
        while len(self._kept) > MAX_MATCHERS:
            self._kept.popitem(last=False)
        return matcher

    def keep(self, sessions: Container[bytes]) -> None:
        """Drops the matchers of all other sessions."""
        for session_id in [key for key in self._kept if key not in sessions]:
            self.forget(session_id)

    def forget(self, session_id: bytes) -> None:
        """Drops a session's matcher."""
        self._kept.pop(session_id, None)

    def __len__(self) -> int:
        return len(self._kept)
