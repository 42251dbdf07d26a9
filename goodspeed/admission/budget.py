"""The prefill budget: tokens that rounds have to spare for prompts while a set of sessions decodes (SLOs-Serve, Eq. 3).

PB*(t, n) = (t / T*) tokens_in(T*) - sum over tiers of n t / tau, with T* the tightest TPOT of those who decode: rounds
are as long as that allows, and each session gets one token per TPOT. With nobody decoding it is one round of all the
time, tokens_in(t). It is exact where t is a multiple of T*, and else less than what a round carries too much. Knows
nothing about requests.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from math import inf
from typing import NamedTuple

from goodspeed.errors import ConfigError

SLACK = 1e-6
"""Tokens by which a budget may be short, since sums are rounded; as a share, by how much a rate may be."""


class Pace(NamedTuple):
    """How a session decodes that is promised a TPOT: a token each, or where its drafts are counted on, more at once."""

    round_s: float  # longest round that keeps its TPOT
    load: float  # of the rounds' tokens, per second; its drafted tokens among them
    drafted: int = 0  # tokens of a draft that are counted on

    @staticmethod
    @lru_cache(maxsize=64)  # there are few tiers, and decisions ask thousands of times
    def plain(tpot_s: float) -> "Pace":
        """A token per TPOT, without drafts."""
        return Pace(tpot_s, 1.0 / tpot_s)

    def quicker(self, share: float) -> "Pace":
        """The same session served as if its TPOT were this share of what it is."""
        return Pace(self.round_s * share, self.load / share, self.drafted)


class Decoding(NamedTuple):
    """Sessions that decode, as far as a budget depends on them: however many there are, two numbers."""

    tightest_s: float = inf  # T*, the least of the longest rounds that they allow: of their TPOTs, without drafts
    load: float = 0.0  # of all of them, in tokens per second: sum of 1 / tau, without drafts

    def with_one(self, pace: Pace | None) -> "Decoding":
        """The same with one more session; without a TPOT it is owed nothing, and changes nothing."""
        if pace is None:
            return self
        return Decoding(min(self.tightest_s, pace.round_s), self.load + pace.load)

    @classmethod
    def of(cls, paces: Iterable[Pace]) -> "Decoding":
        """All of these sessions."""
        own = list(paces)
        return cls(min((pace.round_s for pace in own), default=inf), sum(pace.load for pace in own))


class Budget:
    """The prefill budgets of a decision. What rounds carry is asked for once by their length."""

    def __init__(self, tokens_in: Callable[[float], float]) -> None:
        """tokens_in: how many tokens rounds of so many seconds carry; it must not fall with time."""
        self._ask = tokens_in
        self._known: dict[float, float] = {}

    def tokens_in(self, seconds: float) -> float:
        """What a round of this length carries; ConfigError where that is no number of tokens."""
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

    def is_sustainable(self, decoding: Decoding) -> bool:
        """Whether these sessions can decode for ever, each at its TPOT."""
        return self.rate(decoding) >= 0.0

    def tokens(self, seconds: float, decoding: Decoding) -> float:
        """PB*(t, n): tokens for prompts in so many seconds, beside sessions that can decode for ever."""
        if seconds <= 0.0:
            return 0.0
        if not decoding.load:
            return self.tokens_in(seconds)
        return seconds * self.rate(decoding)
