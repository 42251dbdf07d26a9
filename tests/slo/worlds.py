"""Random asks, tiers and machines for the laws of admission."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from goodspeed.slo.admit import Ask, admit

TIERS = (0.05, 0.1, 0.2)


@dataclass(frozen=True)
class World:
    """The arguments of `admit`."""

    asks: list[Ask]
    decoding: list[float]
    tokens_in: Callable[[float], float] = field(repr=False)
    pages: int | None = None

    def admit(self, policy: str = "dp", **other: Any) -> list[bool]:
        world = replace(self, **other)
        return admit(world.asks, decoding=world.decoding, tokens_in=world.tokens_in, pages=world.pages, policy=policy)

    def value(self, kept: list[bool]) -> float:
        return sum(ask.value for ask, is_kept in zip(self.asks, kept, strict=True) if is_kept)


def machine(rng: random.Random) -> Callable[[float], float]:
    """Tokens in proportion to time, in whole numbers, with a fixed time that carries none, or in few large steps."""
    rate, fixed_s, step = rng.uniform(100.0, 4000.0), rng.uniform(0.0, 0.06), rng.choice([16, 64])
    kinds: list[Callable[[float], float]] = [
        lambda seconds: rate * seconds,
        lambda seconds: int(rate * seconds),
        lambda seconds: max(0, int(rate * (seconds - fixed_s))),
        lambda seconds: step * max(0, int(rate * (seconds - fixed_s)) // step),
    ]
    return rng.choice(kinds)


def draw(rng: random.Random, most: int = 10, *, promised: bool = False) -> World:
    """A world that often can keep some of its asks, and seldom all."""
    tiers = [*TIERS[: rng.randint(1, 3)], *([None] if rng.random() < 0.2 else [])]
    values = rng.choice([(1.0,), (1.0, 2.0, 3.0), tuple(rng.uniform(0.1, 5.0) for _ in range(10))])
    longest = rng.choice([30, 300, 1000])
    asks = []
    for _ in range(rng.randint(0, most)):
        due, prompt = rng.choice([rng.uniform(-0.05, 2.0), rng.choice([0.0, 0.5, 1.0])]), rng.randint(0, longest)
        asked = rng.choice(tiers), rng.randint(0, 20), rng.choice(values)
        asks.append(Ask(due, prompt, *asked, promised=promised and rng.random() < 0.15))
    decoding = [rng.choice(TIERS) for _ in range(rng.choice([0, 0, 3, 20]))]
    return World(asks, decoding, machine(rng), rng.choice([None, rng.randint(0, 150)]))
