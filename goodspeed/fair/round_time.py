"""Models of a forward pass's duration, linear or the maximum of linear terms; and the budget that a model suggests.

`fit.py` fits them to measured samples, `refined.py` refines them with real rounds.
"""

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

MOST_TOKENS = 1 << 40
"""Upper bound of `tokens_in`: where a token costs no time, any number fits."""

Counts = NDArray[np.float64] | NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured forward pass, or a quantile of several of the same shape."""

    num_tokens: int  # fed to the model, over all sessions
    num_sessions: int
    context_tokens: int  # cached before the pass, over all sessions, as in `CostModel.round_s`
    seconds: float

    def __post_init__(self) -> None:
        counts = (self.num_tokens, self.num_sessions, self.context_tokens)
        if min(counts) < 0 or not 0.0 < self.seconds < math.inf:
            raise ValueError(f"{self.seconds} s for {counts} tokens, sessions and context are impossible")


class CostModel(ABC):
    """Predicts the seconds of a round from its tokens, sessions and cached tokens; never decreases in any of them."""

    @overload
    def round_s(self, num_tokens: float, num_sessions: float, context_tokens: float) -> float: ...
    @overload
    def round_s(
        self, num_tokens: float | Counts, num_sessions: float | Counts, context_tokens: float | Counts
    ) -> Any: ...
    def round_s(self, num_tokens: Any, num_sessions: Any, context_tokens: Any) -> Any:
        """Returns a number for numbers; for numpy arrays that broadcast, an array of their shape, float64.

        num_tokens: fed in this round over all sessions; context_tokens: cached before the round over all sessions, and
        counted once for each token fed to a session where the engine reads them so often (`Engine.reads_per_row`).
        """
        return self._seconds(num_tokens, num_sessions, context_tokens)

    def tokens_in(self, seconds: float, num_sessions: float, context_tokens: float, most: int = MOST_TOKENS) -> int:
        """Inverts `round_s`: the most tokens that fit into a round of `seconds`, 0 if even an empty round takes longer.

        Exact: `round_s` of this number is within `seconds`, and that of one more is not, or above `most`.
        """
        if seconds != seconds:
            raise ValueError("the seconds of a round are not a number")
        return bisect_right(
            range(1, most + 1), seconds, key=lambda number: self._seconds(number, num_sessions, context_tokens)
        )

    @abstractmethod
    def _seconds(self, num_tokens: Any, num_sessions: Any, context_tokens: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class Linear(CostModel):
    """AdaSpec's Eq. (2) plus a term per session; all coefficients are 0 or more."""

    fixed_s: float = 0.0
    token_s: float = 0.0
    session_s: float = 0.0
    context_s: float = 0.0

    def __post_init__(self) -> None:
        if not all(0.0 <= value < math.inf for value in self.coefficients):
            raise ValueError(f"coefficients {self.coefficients} must be finite and not negative")

    @property
    def coefficients(self) -> tuple[float, float, float, float]:
        return self.fixed_s, self.token_s, self.session_s, self.context_s

    def _seconds(self, num_tokens: Any, num_sessions: Any, context_tokens: Any) -> Any:
        variable = self.token_s * num_tokens + self.session_s * num_sessions + self.context_s * context_tokens
        return self.fixed_s + variable


@dataclass(frozen=True, slots=True)
class Roofline(CostModel):
    """The maximum of linear terms, as in SLOs-Serve: one for reading the weights, one for computing."""

    terms: tuple[Linear, ...]

    def __post_init__(self) -> None:
        if not self.terms:
            raise ValueError("a roofline needs at least one term")

    def with_least(self, num_tokens: int) -> "Roofline":
        """Returns the model of passes that take as long as with num_tokens tokens if they have fewer."""
        if num_tokens <= 1:
            return self
        rising = (one for one in self.terms if one.token_s)
        flat = (replace(one, fixed_s=one.fixed_s + num_tokens * one.token_s, token_s=0.0) for one in rising)
        return Roofline((*self.terms, *flat))

    def _seconds(self, num_tokens: Any, num_sessions: Any, context_tokens: Any) -> Any:
        seconds = [term._seconds(num_tokens, num_sessions, context_tokens) for term in self.terms]
        return reduce(np.maximum, seconds) if isinstance(seconds[0], np.ndarray) else max(seconds)


SESSIONS, CONTEXT = 8, 256
"""Assumed round while no client is connected: number of sessions, and cached tokens of each."""

STRETCH = 2.0
"""Longest round, relative to a round without drafts."""


def knee(model: CostModel, most_tokens: int) -> int:
    """Returns the largest budget, 1 or more, whose round takes at most STRETCH times a round without drafts.

    The round has SESSIONS with CONTEXT each, and `most_tokens` tokens at most. A round twice as long must bring twice
    the tokens; at usual acceptance rates (0.7 and up), drafts of three or more do. If reading the weights bounds the
    pass, tokens are free up to the roofline's ridge, and the budget lies beyond the ridge. If time is nearly linear in
    tokens, as on a CPU, there is no ridge: drafted tokens then take as much time as the rest of the round (Hockney's
    half-performance length).
    """

    def round_s(budget: int) -> float:
        return model.round_s(SESSIONS + budget, SESSIONS, SESSIONS * CONTEXT)

    longest_s = STRETCH * round_s(0)
    return max(1, bisect_right(range(1, max(1, most_tokens - SESSIONS) + 1), longest_s, key=round_s))


def describe(model: CostModel, budget: int) -> str:
    """Describes in a sentence what a budget means for the assumed round."""
    plain, drafted = (1e3 * model.round_s(SESSIONS + extra, SESSIONS, SESSIONS * CONTEXT) for extra in (0, budget))
    return (
        f"{budget} drafted tokens a round: {SESSIONS} sessions with {CONTEXT} cached tokens each take {plain:.1f} ms "
        f"without drafts and {drafted:.1f} ms with them"
    )
