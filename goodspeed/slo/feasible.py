"""Feasibility of sets of requests, by the prefill budget of SLOs-Serve, Eqs. (3) and (5).

PB*(t, n) = (t / T*) tokens_in(T*) - sum over tiers of n t / tau is the number of prompt tokens that rounds can carry in
t seconds while n sessions decode. Rounds are as long as T*, the tightest TPOT, and each session gets one token per
TPOT. While no session decodes, the budget is that of one long round, tokens_in(t). Exact where t is a multiple of T*.
"""

from collections.abc import Callable, Iterable
from math import inf
from typing import NamedTuple

from goodspeed.errors import ConfigError

SLACK = 1e-6
"""Tolerance for rounded sums: tokens by which a budget may be short, and share by which a rate may be short."""


class Ask(NamedTuple):
    """A request for a deadline: its first token by then, the others at a rate after that."""

    deadline_s: float  # d, seconds from now until its first token is due; below 0: infeasible
    prompt_tokens: int  # p, tokens still to prefill
    tpot_s: float | None  # tau, seconds per token after the deadline; None: no rate
    pages: int = 0  # m, KV pages in the worst case, without those already reserved
    value: float = 1.0  # v, of meeting the deadline; > 0
    promised: bool = False  # admitted earlier, so it stays: a forced request in the paper's words


class Decoding(NamedTuple):
    """Sessions that decode, summarized in the two numbers that a budget depends on."""

    tightest_s: float = inf  # T*, their smallest TPOT
    load: float = 0.0  # sum of 1 / tau: tokens per second of all sessions

    def with_one(self, tpot_s: float | None) -> "Decoding":
        """Returns these sessions plus one. A session without a TPOT is owed nothing, and changes nothing."""
        return self if tpot_s is None else Decoding(min(self.tightest_s, tpot_s), self.load + 1.0 / tpot_s)

    @classmethod
    def of(cls, tpots: Iterable[float]) -> "Decoding":
        """Summarizes sessions with these TPOTs."""
        own = list(tpots)
        return cls(min(own, default=inf), sum(1.0 / tpot_s for tpot_s in own))


class Budget:
    """The prefill budgets of one decision. Calls `tokens_in` once per distinct time."""

    def __init__(self, tokens_in: Callable[[float], float]) -> None:
        """tokens_in: tokens that rounds carry within a time in seconds; must not decrease with time."""
        self._ask = tokens_in
        self._known: dict[float, float] = {}

    def tokens_in(self, seconds: float) -> float:
        """Returns how many tokens rounds carry within `seconds`; ConfigError if that is below 0 or not finite."""
        found = self._known.get(seconds)
        if found is None:
            found = self._known[seconds] = self._ask(seconds)
            if not 0.0 <= found < inf:
                raise ConfigError(f"tokens_in({seconds}) is {found}; it must be finite, and 0 or more")
        return found

    def rate(self, decoding: Decoding) -> float:
        """Returns prompt tokens per second besides decoding; minus infinity if not all sessions can keep their TPOTs.

        0 if no session decodes: `tokens` is not proportional to time then.
        """
        tightest_s, load = decoding
        if not load:
            return 0.0
        spare = self.tokens_in(tightest_s) / tightest_s - load
        if spare >= 0.0:
            return spare
        return 0.0 if spare + SLACK * load >= 0.0 else -inf

    def tokens(self, seconds: float, decoding: Decoding) -> float:
        """Returns PB*(t, n): prompt tokens that fit into `seconds` besides sessions that can decode indefinitely."""
        if seconds <= 0.0:
            return 0.0
        return seconds * self.rate(decoding) if decoding.load else self.tokens_in(seconds)


class Course(NamedTuple):
    """The planned state at the deadline of the latest accepted request; initially, the state now."""

    budget: Budget
    decoding: Decoding  # sessions that decode from then on
    pages: float = inf  # free KV pages
    at_s: float = 0.0
    left: float = 0.0  # pb, prefill budget unused by then, in tokens

    def after(self, ask: Ask) -> "Course | None":
        """Returns the state after accepting one more request with no earlier deadline; None if it is infeasible.

        Feasible: the rounds until its deadline can prefill its prompt, and all sessions that decode from then on can do
        so indefinitely.
        """
        if ask.deadline_s < 0.0 or ask.pages > self.pages:
            return None
        left = self.left + self.budget.tokens(ask.deadline_s - self.at_s, self.decoding) - ask.prompt_tokens
        decoding = self.decoding.with_one(ask.tpot_s)
        if left < -SLACK or self.budget.rate(decoding) < 0.0:
            return None
        return Course(self.budget, decoding, self.pages - ask.pages, ask.deadline_s, left)

    def after_all(self, ordered: Iterable[Ask]) -> "Course | None":
        """Returns the state after accepting all requests, sorted by deadline; None if one is infeasible."""
        course: Course | None = self if self.budget.rate(self.decoding) >= 0.0 else None
        for ask in ordered:
            if course is None:
                return None
            course = course.after(ask)
        return course
