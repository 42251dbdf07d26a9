"""Sets of requests that can be kept: the prefill budget of SLOs-Serve, Eqs. (3) and (5).

PB*(t, n) = (t / T*) tokens_in(T*) - sum over tiers of n t / tau is what rounds have to spare for prompts in t seconds
while n sessions decode: rounds are as long as T*, the tightest TPOT, and each session gets one token per TPOT. While
nobody decodes it is one round of all the time, tokens_in(t). It is exact where t is a multiple of T*.
"""

from collections.abc import Callable, Iterable
from math import inf
from typing import NamedTuple

from goodspeed.errors import ConfigError

SLACK = 1e-6
"""Tokens by which a budget may be short, since sums are rounded; as a share, by how much a rate may be."""


class Ask(NamedTuple):
    """A request for a deadline: its first token by then, and the others at a rate after that."""

    deadline_s: float  # d, seconds from now until its first token is due; below 0 it cannot be kept
    prompt_tokens: int  # p, those that are still to be read
    tpot_s: float | None  # tau, seconds per token after the deadline; None: no rate
    pages: int = 0  # m, of KV memory, in the worst case; what is reserved already does not count
    value: float = 1.0  # v, of keeping it; > 0
    promised: bool = False  # admitted before, so it stays: a forced request in the paper's words


class Decoding(NamedTuple):
    """Sessions that decode, as far as a budget depends on them: two numbers, however many there are."""

    tightest_s: float = inf  # T*, the least of their TPOTs
    load: float = 0.0  # sum of 1 / tau: tokens per second of all of them

    def with_one(self, tpot_s: float | None) -> "Decoding":
        """The same with one more session; without a TPOT it is owed nothing, and changes nothing."""
        return self if tpot_s is None else Decoding(min(self.tightest_s, tpot_s), self.load + 1.0 / tpot_s)

    @classmethod
    def of(cls, tpots: Iterable[float]) -> "Decoding":
        """Sessions of these TPOTs."""
        own = list(tpots)
        return cls(min(own, default=inf), sum(1.0 / tpot_s for tpot_s in own))


class Budget:
    """The prefill budgets of one decision. `tokens_in` is called once for each length of a round."""

    def __init__(self, tokens_in: Callable[[float], float]) -> None:
        """tokens_in: how many tokens rounds of so many seconds carry; it must not fall with time."""
        self._ask = tokens_in
        self._known: dict[float, float] = {}

    def tokens_in(self, seconds: float) -> float:
        """Tokens in rounds of so many seconds; ConfigError where that is no number of tokens."""
        found = self._known.get(seconds)
        if found is None:
            found = self._known[seconds] = self._ask(seconds)
            if not 0.0 <= found < inf:
                raise ConfigError(f"tokens_in({seconds}) is {found}; it must be finite, and 0 or more")
        return found

    def rate(self, decoding: Decoding) -> float:
        """Tokens per second for prompts beside these; minus infinity where they cannot all decode at their TPOTs.

        It is 0 where nobody decodes, since `tokens` is not proportional to time then.
        """
        tightest_s, load = decoding
        if not load:
            return 0.0
        spare = self.tokens_in(tightest_s) / tightest_s - load
        if spare >= 0.0:
            return spare
        return 0.0 if spare + SLACK * load >= 0.0 else -inf

    def tokens(self, seconds: float, decoding: Decoding) -> float:
        """PB*(t, n): tokens for prompts in so many seconds, beside sessions that can decode for ever."""
        if seconds <= 0.0:
            return 0.0
        return seconds * self.rate(decoding) if decoding.load else self.tokens_in(seconds)


class Course(NamedTuple):
    """The state after the last accepted request, at its deadline; as it begins, the state now."""

    budget: Budget
    decoding: Decoding  # sessions that decode from then on
    pages: float = inf  # still free
    at_s: float = 0.0
    left: float = 0.0  # pb, prefill budget that is not used up by then, in tokens

    def after(self, ask: Ask) -> "Course | None":
        """The state after accepting one more, whose deadline is no earlier; None where it cannot be kept.

        It can be if its prompt is read by its deadline, out of what the rounds until then have to spare, and if all
        who decode from then on can do so for ever.
        """
        if ask.deadline_s < 0.0 or ask.pages > self.pages:
            return None
        left = self.left + self.budget.tokens(ask.deadline_s - self.at_s, self.decoding) - ask.prompt_tokens
        decoding = self.decoding.with_one(ask.tpot_s)
        if left < -SLACK or self.budget.rate(decoding) < 0.0:
            return None
        return Course(self.budget, decoding, self.pages - ask.pages, ask.deadline_s, left)

    def after_all(self, ordered: Iterable[Ask]) -> "Course | None":
        """The state after accepting all of these, in the order of deadlines; None where one cannot be kept."""
        course: Course | None = self if self.budget.rate(self.decoding) >= 0.0 else None
        for ask in ordered:
            if course is None:
                return None
            course = course.after(ask)
        return course
