"""Follows one output by a grammar: which tokens may come next at each row of a draft, and which text must.

Everything is a function of constraint and text. What was consumed is kept and gone on from, or back to where the next
text parts from it (a session that is opened again, say). Drafted tokens are taken back in the same call.
"""

from collections.abc import Collection, Sequence
from enum import Enum, auto
from itertools import takewhile

import numpy as np
from llguidance import LLMatcher
from numpy.typing import NDArray

from goodspeed.constraint.compiling import CompiledConstraint, failure

ANY = -1
"""A word in which every token is allowed."""

NOT_KEPT = "the text so far does not keep the constraint"

MAX_FORCED = 64
"""Most tokens that `forced` tells at once."""


class State(Enum):
    """The state that decides the token after a text."""

    FREE = auto()  # nothing yet, but that the text may not end: the tokens that end the free part have not come
    WITHIN = auto()  # the grammar
    OVER = auto()  # nothing: the text has ended
    BROKEN = auto()  # the text does not keep the grammar, or costs more than it may: no token may follow


class Matcher:
    """One text's place in a grammar."""

    def __init__(
        self, compiled: CompiledConstraint, after: Sequence[int] = (), stop_ids: Collection[int] | None = None
    ) -> None:
        """after: tokens up to and including their first occurrence are free, but the text may not end among them.

        stop_ids: of the text. Of the ids that end a text in this vocabulary only these may, where the grammar may end;
        None: all of them. Other stop ids are tokens like any other: a text that takes one ends in the middle.
        """
        self._compiled = compiled
        self._after = tuple(after)
        self._eos_ids = compiled.table.eos_ids
        self._closed = self._eos_ids - frozenset(stop_ids) if stop_ids is not None else frozenset()
        self.problem = ""  # why nothing may follow, of the first row of the last `allowed` of which that is so
        self._may_begin_anew = True
        self._begun: LLMatcher | None = None
        self._tokens: list[int] = []
        self._states: list[State] = []  # at the start, and after each token
        self._restart()

    def allowed(
        self, output: Sequence[int], drafted: Sequence[int] = (), parents: Sequence[int] | None = None
    ) -> NDArray[np.int32]:
        """Returns what may be drawn after the output, and after each drafted token [num_drafted + 1, num_words].

        Bit t % 32 of word t // 32 says whether token t may. parents: of each drafted token the index of the one that
        it follows, or -1; None for a chain. A row after a token that may not be drawn itself, or that ends the text, is
        never drawn from, and allows all. A row without any bit follows a text that does not keep the constraint.
        """
        self.problem = ""
        self._may_begin_anew = True
        self._follow(output)
        rows = np.full((len(drafted) + 1, self._compiled.table.num_words), ANY, np.int32)
        self._fill(rows[0])
        path: list[int] = []  # of nodes: what is consumed beyond the output
        for node in range(len(drafted)):
            self._go(path, _way(node, parents), drafted)
            if self._states[-1] is not State.BROKEN or self.is_spent:
                self._fill(rows[node + 1], is_drafted=True)
        self._go(path, [], drafted)
        return rows

    def forced(self, output: Sequence[int]) -> tuple[int, ...]:
        """Returns the tokens that must follow the output, whatever is drawn; none where there is a choice."""
        self._follow(output)
        if self._states[-1] is not State.WITHIN:
            return ()
        found: list[int] = self.inner.compute_ff_tokens()
        return tuple(found[:MAX_FORCED])

    def may_end(self, output: Sequence[int]) -> bool:
        """True if the output keeps the constraint as it is."""
        self._follow(output)
        return self._states[-1] is State.WITHIN and bool(self.inner.is_accepting())

    def stands_within(self, output: Sequence[int]) -> bool:
        """True if the grammar alone decides what follows the output, at whose end `inner` then stands."""
        self._follow(output)
        return self._states[-1] is State.WITHIN and not self._closed

    @property
    def has_begun(self) -> bool:
        """True if `inner` need not be compiled."""
        return self._begun is not None

    @property
    def is_spent(self) -> bool:
        """True if the library has given up: what was asked of it since this text began costs more than it may."""
        return self._begun is not None and bool(self._begun.is_error())

    @property
    def inner(self) -> LLMatcher:
        """The library's matcher, for calls that leave it as it is; ConstraintError where it no longer compiles."""
        if self._begun is None:
            self._begun = self._compiled.begin()
        return self._begun

    # -- the text ------------------------------------------------------------------------------------------------------

    def _restart(self) -> None:
        self._begun = None
        self._tokens = []
        self._states = [State.WITHIN if not self._after else State.FREE]

    def _follow(self, output: Sequence[int]) -> None:
        """Stands at the end of the output."""
        if self.is_spent:
            self._restart()
        num_common = len(self._tokens)
        if list(output[:num_common]) != self._tokens:
            num_common = _num_common(self._tokens, output)
        while len(self._tokens) > num_common:
            self._pop()
        self._push_all(output[num_common:])

    def _go(self, path: list[int], way: Sequence[int], drafted: Sequence[int]) -> None:
        """Goes from one drafted node to another; path: of the first, and afterwards of the second."""
        num_common = _num_common(path, way)
        while len(path) > num_common:
            path.pop()
            self._pop()
        for node in way[num_common:]:
            path.append(node)
            self._push(drafted[node])

    def _push_all(self, tokens: Sequence[int]) -> None:
        """Pushes them in turn; those that the grammar reads before the text may end in one call of the library."""
        num_read = 0
        if self._states[-1] is State.WITHIN:
            run = list(takewhile(lambda token: token not in self._eos_ids, tokens))
            num_read = self.inner.try_consume_tokens(run) if run else 0
            self._tokens += run[:num_read]
            self._states += [State.WITHIN] * num_read
        for token in tokens[num_read:]:
            self._push(token)

    def _push(self, token: int) -> None:
        self._tokens.append(token)
        state = self._states[-1]
        if state is State.FREE and tuple(self._tokens[-len(self._after) :]) == self._after:
            state = State.WITHIN
        elif state is State.FREE and token in self._eos_ids:
            state = State.OVER
        elif state is State.WITHIN:
            state = self._consume(token)
        self._states.append(state)

    def _consume(self, token: int) -> State:
        if token in self._eos_ids:
            return State.OVER
        return State.WITHIN if self.inner.try_consume_tokens([token]) == 1 else State.BROKEN

    def _pop(self) -> None:
        self._tokens.pop()
        if self._states.pop() is State.WITHIN and self._states[-1] is State.WITHIN:
            self.inner.rollback(1)

    def _fill(self, row: NDArray[np.int32], *, is_drafted: bool = False) -> None:
        """Writes what may follow the newest token.

        Where the library gives up, a new matcher reads the text once more, since what this one has read besides, in
        drafts that were rejected, must not matter. That is done once for all rows, which bounds the cost.
        """
        problem = self.problem
        self._write(row)
        if self.is_spent and self._may_begin_anew:
            self._may_begin_anew = False
            self.problem = problem
            self._follow(self._tokens)
            row[:] = ANY
            if not is_drafted or self._states[-1] is not State.BROKEN or self.is_spent:
                self._write(row)

    def _write(self, row: NDArray[np.int32]) -> None:
        state = self._states[-1]
        if state is State.FREE:
            _clear(row, self._eos_ids)
        elif state is State.WITHIN:
            self.inner.unsafe_compute_mask_ptr(row.ctypes.data, row.nbytes)
            _clear(row, self._closed)
        if state is State.BROKEN or self.is_spent:
            found = failure(self.inner, self._compiled.constraint) or NOT_KEPT
            self.problem = self.problem or found
            row[:] = 0


def _clear(row: NDArray[np.int32], tokens: Collection[int]) -> None:
    words = row.view(np.uint32)
    for token in tokens:
        words[token // 32] &= ~np.uint32(1 << token % 32)


def _num_common(some: Sequence[int], others: Sequence[int]) -> int:
    """Returns how many tokens both begin with."""
    pairs = zip(some, others, strict=False)
    return next((at for at, (one, other) in enumerate(pairs) if one != other), min(len(some), len(others)))


def _way(node: int, parents: Sequence[int] | None) -> Sequence[int]:
    """The nodes from the base to this one."""
    if parents is None:
        return range(node + 1)
    way: list[int] = []
    while node >= 0:
        way.append(node)
        node = parents[node]
    return way[::-1]
