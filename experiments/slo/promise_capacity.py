"""Computes how many users a GPU can promise a service level, without drafts; **not measured**.

In the steady state by the prefill budget (`goodspeed/slo/feasible.py`); and by deciding on requests that come at
random, one after the other, as a verify node does. All decode as slowly as they were promised, which is the worst case:
what rounds have to spare would make them quicker, and their memory free sooner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal, NamedTuple

from experiments.capacity import Gpu
from goodspeed.admission import Ask, admit
from goodspeed.slo.capacity import FLOOR
from goodspeed.slo.feasible import Budget, Decoding

STEPS = 60  # of a bisection, which leave nothing to be seen


@dataclass(frozen=True)
class Tier:
    """A service level, and what the texts are that ask for it."""

    ttft_s: float
    tpot_s: float
    prompt_tokens: int
    output_tokens: int

    @property
    def decoding_s(self) -> float:
        """From its first token to its last."""
        return (self.output_tokens - 1) * self.tpot_s

    @property
    def tokens(self) -> int:
        """Number of tokens that it reserves in memory."""
        return self.prompt_tokens + self.output_tokens

    @property
    def context(self) -> float:
        """Tokens that are cached of it, in the middle of its text."""
        return self.prompt_tokens + self.output_tokens / 2


@dataclass(frozen=True)
class Plan:
    """Requests to be promised, and the GPU. Requests are of the tiers by their shares, which sum up to 1."""

    gpu: Gpu
    tiers: tuple[tuple[Tier, float], ...]
    longer: float = 1.0  # rounds are planned so many times as long as modelled

    def tokens_in(self, seconds: float, num_sessions: float, context: float) -> float:
        """Tokens that may be promised of a round of so many seconds."""
        return (1.0 - FLOOR) * self.gpu.round_cost.tokens_in(seconds / self.longer, num_sessions, context)

    @property
    def cached_tokens(self) -> float | None:
        """Those of the memory that may be promised; None: it is not known how many fit."""
        return None if self.gpu.cached_tokens is None else (1.0 - FLOOR) * self.gpu.cached_tokens

    @property
    def tightest_s(self) -> float:
        return min(tier.tpot_s for tier, _ in self.tiers)

    def mean(self, measure: Callable[[Tier], float]) -> float:
        """Returns the mean of a measure over requests."""
        return sum(share * measure(tier) for tier, share in self.tiers)


class Steady(NamedTuple):
    """The most requests per second that can all be promised."""

    requests_per_s: float
    num_decoding: float
    limit: Literal["time", "memory"]


def steady(plan: Plan) -> Steady:
    """Prompts and texts take all the tokens that rounds of the tightest TPOT carry, or all memory is reserved."""

    def fits_in_time(rate: float) -> bool:
        decoding = rate * plan.mean(lambda tier: tier.decoding_s)
        context = rate * plan.mean(lambda tier: tier.decoding_s * tier.context)
        carried = plan.tokens_in(plan.tightest_s, decoding, context) / plan.tightest_s
        return rate * plan.mean(lambda tier: tier.tokens - 1) <= carried  # the first token comes with the prompt's last

    by_time, cached = _most(fits_in_time), plan.cached_tokens
    held = plan.mean(lambda tier: (tier.ttft_s + tier.decoding_s) * tier.tokens)  # tokens times seconds of a request
    by_memory = by_time if cached is None else cached / held
    rate = min(by_time, by_memory)
    decoding = rate * plan.mean(lambda tier: tier.decoding_s)
    return Steady(rate, decoding, "memory" if by_memory < by_time else "time")


def most_decoding(gpu: Gpu, tier: Tier, longer: float = 1.0) -> int:
    """Sessions of a tier that can decode for ever, if nobody new comes."""
    plan = Plan(gpu, ((tier, 1.0),), longer)
    by_time = _most(lambda number: plan.tokens_in(tier.tpot_s, number, number * tier.context) >= number)
    return int(by_time if plan.cached_tokens is None else min(by_time, plan.cached_tokens // tier.tokens))


def _most(fits: Callable[[float], bool]) -> float:
    """The largest number that fits, where all below it do; 0 where none does."""
    low, high = 0.0, 1.0
    while fits(high) and high < 1e9:
        low, high = high, 2 * high
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


@dataclass
class _Promise:
    """One that is kept: its prompt is read by the deadline, and then it decodes until its end."""

    tier: Tier
    deadline_s: float
    prompt_left: float

    @property
    def end_s(self) -> float:
        return self.deadline_s + self.tier.decoding_s


class Node:
    """Decides on requests one after the other, and keeps what it promises as slowly as it may. Times only rise."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.now_s = 0.0
        self.promises: list[_Promise] = []

    def decide(self, tier: Tier, at_s: float, policy: str = "edf") -> bool:
        """True if a request that comes now is promised its tier. One request: `edf` and `dp` are the same."""
        self._go_on(at_s)
        early_s = self.plan.tightest_s  # first tokens are planned a round before they are due
        asks = [
            Ask(one.deadline_s - at_s, round(one.prompt_left), one.tier.tpot_s, promised=True)
            for one in self._before(at_s)
        ]
        asks.append(Ask(tier.ttft_s - early_s, tier.prompt_tokens, tier.tpot_s, tier.tokens))
        free, tokens_in = None, self._tokens_in([*(one.tier for one in self.promises), tier])
        if self.plan.cached_tokens is not None:
            free = max(0, int(self.plan.cached_tokens) - sum(one.tier.tokens for one in self.promises))
        tpots = [one.tier.tpot_s for one in self.promises if one.deadline_s <= at_s]
        is_promised = admit(asks, decoding=tpots, tokens_in=tokens_in, pages=free, policy=policy)[-1]
        if is_promised:
            self.promises.append(_Promise(tier, at_s + tier.ttft_s - early_s, tier.prompt_tokens))
        return is_promised

    def _before(self, at_s: float) -> list[_Promise]:
        """Those whose first token is not due yet, by deadline."""
        return sorted((one for one in self.promises if one.deadline_s > at_s), key=lambda one: one.deadline_s)

    def _go_on(self, until_s: float) -> None:
        """Prompts are read by their deadlines, out of what those leave who decode; nothing else changes in between."""
        for next_s in self._changes(until_s):
            decoding = Decoding.of(one.tier.tpot_s for one in self.promises if one.deadline_s <= self.now_s)
            budget = Budget(self._tokens_in([one.tier for one in self.promises]))
            left = budget.tokens(next_s - self.now_s, decoding)
            for one in self._before(self.now_s):
                taken = min(left, one.prompt_left)
                one.prompt_left -= taken
                left -= taken
            self.now_s = next_s
            self.promises = [one for one in self.promises if one.end_s > self.now_s]

    def _changes(self, until_s: float) -> Iterator[float]:
        """Yields the times at which a session begins to decode or ends, and then the time itself."""
        moments = {moment for one in self.promises for moment in (one.deadline_s, one.end_s)}
        yield from sorted(moment for moment in moments if self.now_s < moment < until_s)
        yield until_s

    def _tokens_in(self, tiers: Sequence[Tier]) -> Callable[[float], float]:
        context = sum(tier.context for tier in tiers)
        return lambda seconds: self.plan.tokens_in(seconds, len(tiers), context)


def promised_share(plan: Plan, requests_per_s: float, seconds: float, seed: int = 0) -> float:
    """The share of requests that is promised when they come at random (Poisson), once texts end as often as they begin.

    seconds: for which it is counted, after as long as the longest text takes.
    """
    random, node = Random(seed), Node(plan)
    tiers, shares = [tier for tier, _ in plan.tiers], [share for _, share in plan.tiers]
    warm_s = max(tier.ttft_s + tier.decoding_s for tier in tiers)
    at_s, decided = 0.0, []
    while (at_s := at_s + random.expovariate(requests_per_s)) < warm_s + seconds:
        is_promised = node.decide(random.choices(tiers, shares)[0], at_s)
        if at_s >= warm_s:
            decided.append(is_promised)
    return sum(decided) / len(decided) if decided else 0.0
