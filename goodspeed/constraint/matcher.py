"""Tracks one output's position in a grammar: allowed tokens at each row of a draft, and tokens that must follow.

Results depend on constraint and text alone. A matcher retains the tokens that it consumed: the next call continues
there, or rolls back to the common prefix (of a reopened session, say). Drafted tokens are rolled back in the same call.
"""

from collections.abc import Collection, Sequence
from enum import Enum, auto
from itertools import takewhile

import numpy as np
from llguidance import LLMatcher
from numpy.typing import NDArray

from goodspeed.constraint import grammars
from goodspeed.constraint.tokens import TokenTable
from goodspeed.exact.logits.token_counts import num_common
from goodspeed.wire.generation import Constraint

ANY = -1
"""A mask word that allows all of its tokens."""

NOT_KEPT = "the text so far violates the constraint"

MAX_FORCED = 64
"""Most tokens that one call of `forced` returns."""


class State(Enum):
    """Tells what restricts the next token of a text."""

    FREE = auto()  # nothing, but the text may not end: the free part goes on until the `after` tokens
    WITHIN = auto()  # the grammar
    OVER = auto()  # nothing: the text has ended already
    BROKEN = auto()  # the text violates the grammar, or exceeds its cost limits: no token may follow


class Matcher:
    """A constraint compiled for one text, and the text's position in its grammar.

    Not thread-safe: the model's thread uses it, or during a forward pass the thread of masks for it.
    """

    def __init__(self, table: TokenTable, constraint: Constraint) -> None:
        """The text is free through the first occurrence of `constraint.after`, but may not end before it."""
        self.constraint = constraint
        self._table = table
        self._after = constraint.after
        self._closed: Collection[int] = ()
        self.problem = ""  # why the latest `allowed` call has an empty row (the first one); "": it has none
        self._may_begin_anew = True
        self._begun: LLMatcher | None = None
        self._restart()

    def stop_at(self, stop_ids: Collection[int]) -> None:
        """Sets the text's stop tokens; until then they are the vocabulary's EOS tokens.

        Where the grammar may end, the EOS tokens among them are allowed. Other stop ids are ordinary tokens: a text
        that draws one ends in mid-grammar.
        """
        self._closed = self._table.eos_ids.difference(stop_ids)

    def allowed(
        self, output: Sequence[int], drafted: Sequence[int] = (), parents: Sequence[int] | None = None
    ) -> NDArray[np.int32]:
        """Returns the tokens allowed after the output and after each drafted token [num_drafted + 1, num_words].

        Token t is allowed if bit t % 32 of word t // 32 is set. parents: index of each drafted token's parent in
        `drafted`, -1: the output; None: a chain. A row allows all tokens if its drafted token is not allowed or ends
        the text: no token is ever drawn from it. A row without any bit follows a text that violates the constraint.
        """
        self.problem = ""
        self._may_begin_anew = True
        self._follow(output)
        rows = np.full((len(drafted) + 1, self._table.num_words), ANY, np.int32)
        self._fill(rows[0])
        path: list[int] = []  # drafted nodes consumed after the output
        for node in range(len(drafted)):
            self._move_to(path, _path_to(node, parents), drafted)
            if self._states[-1] is not State.BROKEN or self.is_spent:
                self._fill(rows[node + 1], is_drafted=True)
        self._move_to(path, [], drafted)
        return rows

    def forced(self, output: Sequence[int]) -> tuple[int, ...]:
        """Returns the tokens that must follow the output; empty if several tokens are allowed."""
        self._follow(output)
        if self._states[-1] is not State.WITHIN:
            return ()
        found: list[int] = self.inner.compute_ff_tokens()
        return tuple(found[:MAX_FORCED])

    def stands_within(self, output: Sequence[int]) -> bool:
        """Advances `inner` to the end of the output; True if the grammar alone decides the next token."""
        self._follow(output)
        return self._states[-1] is State.WITHIN and not self._closed

    @property
    def is_spent(self) -> bool:
        """True if llguidance gave up: this matcher exceeded its cost limits."""
        return self._begun is not None and bool(self._begun.is_error())

    @property
    def inner(self) -> LLMatcher:
        """llguidance's matcher, for calls that do not change it; ConstraintError if it no longer compiles."""
        return self.begin() if self._begun is None else self._begun

    def begin(self) -> LLMatcher:
        """Compiles the constraint; ConstraintError as in `grammars.compiled_matcher`."""
        self._begun = grammars.compiled_matcher(self.constraint, self._table)
        return self._begun

    def _restart(self) -> None:
        self._begun = None
        self._tokens: list[int] = []
        self._states = [State.FREE if self._after else State.WITHIN]  # at the start, and after each token

    def _follow(self, output: Sequence[int]) -> None:
        """Moves to the end of the output: rolls back to the common prefix, then consumes the rest."""
        if self.is_spent:
            self._restart()
        common = len(self._tokens)
        if list(output[:common]) != self._tokens:
            common = num_common(self._tokens, output)
        while len(self._tokens) > common:
            self._pop()
        self._push_all(output[common:])

    def _move_to(self, path: list[int], way: Sequence[int], drafted: Sequence[int]) -> None:
        """Moves to another drafted node. path: nodes consumed so far; becomes `way`, the path to the new node."""
        common = num_common(path, way)
        while len(path) > common:
            path.pop()
            self._pop()
        for node in way[common:]:
            path.append(node)
            self._push(drafted[node])

    def _push_all(self, tokens: Sequence[int]) -> None:
        """Consumes tokens in order; those before the first EOS token in one llguidance call, if within the grammar."""
        num_read = 0
        if self._states[-1] is State.WITHIN:
            run = list(takewhile(lambda token: token not in self._table.eos_ids, tokens))
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
        elif state in (State.FREE, State.WITHIN) and token in self._table.eos_ids:
            state = State.OVER
        elif state is State.WITHIN and self.inner.try_consume_tokens([token]) != 1:
            state = State.BROKEN
        self._states.append(state)

    def _pop(self) -> None:
        self._tokens.pop()
        if self._states.pop() is State.WITHIN and self._states[-1] is State.WITHIN:
            self.inner.rollback(1)

    def _fill(self, row: NDArray[np.int32], *, is_drafted: bool = False) -> None:
        """Writes the tokens allowed after the newest token.

        If llguidance gives up, a new matcher reads the text again: the cost of rejected drafts must not change the
        result. This happens once per `allowed` call, which bounds the cost.
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
            _clear(row, self._table.eos_ids)
        elif state is State.WITHIN:
            self.inner.unsafe_compute_mask_ptr(row.ctypes.data, row.nbytes)
            _clear(row, self._closed)
        if state is State.BROKEN or self.is_spent:
            found = grammars.failure(self.inner, self.constraint) or NOT_KEPT
            self.problem = self.problem or found
            row[:] = 0


def _clear(row: NDArray[np.int32], tokens: Collection[int]) -> None:
    words = row.view(np.uint32)
    for token in tokens:
        words[token // 32] &= ~np.uint32(1 << token % 32)


def _path_to(node: int, parents: Sequence[int] | None) -> Sequence[int]:
    """Returns the nodes on the path from the output to this node."""
    if parents is None:
        return range(node + 1)
    way: list[int] = []
    while node >= 0:
        way.append(node)
        node = parents[node]
    return way[::-1]
