"""Models of a forward pass's duration, linear or the maximum of linear terms; and the budget that one suggests.

`fit.py` fits them to measured samples, `refined.py` goes on learning from real rounds.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

MOST_TOKENS = 1 << 40
"""Most tokens that `tokens_in` returns: where a token costs nothing, any number of them fits."""

Counts = NDArray[np.float64] | NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured forward pass, or a quantile of several of the same shape."""

    num_tokens: int  # fed, over all sessions
    num_sessions: int
    context_tokens: int  # cached before, over all sessions
    seconds: float

    def __post_init__(self) -> None:
        counts = (self.num_tokens, self.num_sessions, self.context_tokens)
        if min(counts) < 0 or not 0.0 < self.seconds < math.inf:
            raise ValueError(f"{self.seconds} s for {counts} tokens, sessions and context is impossible")


class CostModel(ABC):
    """Predicts the seconds of a round from its tokens, sessions and cached tokens; it falls in none of them."""

    @overload
    def round_s(self, num_tokens: float, num_sessions: float, context_tokens: float) -> float: ...
    @overload
    def round_s(
        self, num_tokens: float | Counts, num_sessions: float | Counts, context_tokens: float | Counts
    ) -> Any: ...
    def round_s(self, num_tokens: Any, num_sessions: Any, context_tokens: Any) -> Any:
        """Takes numbers and returns one, or takes numpy arrays that broadcast and returns their shape, float64.

        num_tokens: fed in this round over all sessions; context_tokens: cached before it over all sessions.
        """
        return self._seconds(num_tokens, num_sessions, context_tokens)

    def tokens_in(self, seconds: float, num_sessions: float, context_tokens: float) -> int:
        """The most tokens that a round of these seconds may have, 0 if even none takes longer: `round_s` inverted.

        Exact: `round_s` of as many is within the seconds, and that of one more is not. It is at most MOST_TOKENS.
        """
        if seconds != seconds:
            raise ValueError("the seconds of a round are not a number")
        near = self._near(seconds, num_sessions, context_tokens)
        return largest(lambda n: self._seconds(n, num_sessions, context_tokens) <= seconds, near, MOST_TOKENS)

    @abstractmethod
    def _seconds(self, num_tokens: Any, num_sessions: Any, context_tokens: Any) -> Any: ...

    def _near(self, seconds: float, num_sessions: float, context_tokens: float) -> float:
        """About how many tokens take these seconds, where a model knows; never not a number."""
        return 1.0


@dataclass(frozen=True, slots=True)
class Linear(CostModel):
    """AdaSpec's Eq. (2) plus a term per session; no coefficient is negative."""

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

    def _near(self, seconds: float, num_sessions: float, context_tokens: float) -> float:
        left_s = seconds - self._seconds(0, num_sessions, context_tokens)
        return left_s / self.token_s if self.token_s else math.copysign(math.inf, left_s)


@dataclass(frozen=True, slots=True)
class Roofline(CostModel):
    """The maximum of linear terms, as in SLOs-Serve: one for reading the weights, one for computing."""

    terms: tuple[Linear, ...]

    def __post_init__(self) -> None:
        if not self.terms:
            raise ValueError("a roofline needs at least one term")

    def _seconds(self, num_tokens: Any, num_sessions: Any, context_tokens: Any) -> Any:
        seconds = [term._seconds(num_tokens, num_sessions, context_tokens) for term in self.terms]
        if any(isinstance(value, np.ndarray) for value in seconds):
            return reduce(np.maximum, seconds)
        return max(seconds)

    def _near(self, seconds: float, num_sessions: float, context_tokens: float) -> float:
        return min(term._near(seconds, num_sessions, context_tokens) for term in self.terms)


def largest(fits: Callable[[int], bool], near: float, most: int) -> int:
    """Returns the largest number from 0 to `most` that fits, 0 if none does; what is smaller than one that fits, fits.

    near: a guess. A right one takes two calls; a wrong one, about twice as many as its error has binary digits.
    """
    guess, step = int(min(max(near, 0.0), most)), 1
    if fits(guess):
        low = guess
        while low + step <= most and fits(low + step):
            low += step
            step *= 2
        high = min(low + step, most + 1)
    else:
        high = guess
        while high > step and not fits(high - step):
            high -= step
            step *= 2
        low = max(high - step, 0)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


SESSIONS, CONTEXT = 8, 256
"""The assumed round when no client is connected yet: number of sessions, and cached tokens of each."""

STRETCH = 2.0
"""Longest round, relative to one without drafts."""


def knee(model: CostModel, most_tokens: int) -> int:
    """Returns the largest budget, 1 or more, whose round takes at most STRETCH times one without drafts.

    The round has SESSIONS with CONTEXT each, `most_tokens` tokens at most. One that lasts twice as long has to bring
    twice the tokens: at usual acceptance rates (0.7 and up) drafts of three or more do. Where reading the weights
    bounds the pass, tokens are free up to the roofline's ridge and the budget lies beyond it. Where time is nearly
    linear in tokens, as on a CPU, there is no ridge: drafted tokens then take as much time as all the rest of the
    round (Hockney's half-performance length).
    """

    def round_s(budget: int) -> float:
        return model.round_s(SESSIONS + budget, SESSIONS, SESSIONS * CONTEXT)

    longest_s = STRETCH * round_s(0)
    return max(1, largest(lambda budget: round_s(budget) <= longest_s, 1, max(1, most_tokens - SESSIONS)))


def describe(model: CostModel, budget: int) -> str:
    """Returns a sentence on what a budget means for that round."""
    plain, drafted = (1e3 * model.round_s(SESSIONS + extra, SESSIONS, SESSIONS * CONTEXT) for extra in (0, budget))
    return (
        f"{budget} drafted tokens a round: {SESSIONS} sessions with {CONTEXT} cached tokens each take {plain:.1f} ms "
        f"without drafts and {drafted:.1f} ms with them"
    )
