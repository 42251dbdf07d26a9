"""Ways of finding the best arm while serving, in toy worlds: what they lose, and how often they change to a worse arm.

A round's tokens and seconds are drawn; an arm takes effect a few rounds after it was chosen. Compared are the verify
node's paired switchback (`verify_node.arms.arms`) and a discounted Thompson sampling over the stretches' own rates,
unpaired, under the same share of time for other arms than the best or under none. Prints one line for each world and
difference: `python -m experiments.simulation.switchback` (about 12 minutes; --quick a minute).

Knows nothing about sessions or policies.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from statistics import mean
from typing import Any, Protocol

import numpy as np

from verify_node.arms.arms import Arms
from verify_node.arms.comparisons import Arm
from verify_node.arms.stretches import ArmRound, Stretch

ROUND_S, LAG_ROUNDS = 0.03, 4
MEMORY = 40  # stretches of each arm that the rival remembers
CHUNK = 4096


@dataclass(frozen=True)
class World:
    """A toy verify node. Rates are relative; those of busy phases hold while somebody else uses the machine."""

    rates: dict[Arm, float]
    slow_s: float = 0.0  # mean length of phases at half the speed; 0: none
    calm_s: float = 30.0  # mean time between them
    bursts_s: float = 0.0  # mean length of phases of 2 and of 8 sessions; 0: always 8
    turns_s: float = math.inf  # after so many seconds the differences between the arms are inverted
    texts_s: float = 0.0  # drafts bring half as much again in every second phase of this length; 0: in none
    in_pace: bool = False  # arms differ in what their rounds take, and not in what they bring

    def rate(self, arm: Arm, now_s: float) -> float:
        best = max(self.rates.values())
        turned = (now_s // self.turns_s) % 2 if self.turns_s < math.inf else 0
        return self.rates[arm] if not turned else best * min(self.rates.values()) / self.rates[arm]


class Chooser(Protocol):
    """What says which arm the next round has."""

    @property
    def arm(self) -> Arm: ...

    @property
    def best(self) -> Arm: ...

    def observe(self, done: ArmRound) -> None: ...


@dataclass
class Outcome:
    """One run: shares of the time, and changes of the best arm."""

    loss: float = 0.0  # tokens lost against always the best arm, as a share
    explored: float = 0.0
    num_changes: int = 0
    num_false: int = 0  # changes to an arm that was not better
    ended_with: Arm = Arm.MODEL
    found_s: float = math.inf  # since when the best arm was kept, last
    history: list[tuple[float, Arm]] = field(default_factory=list)  # (busy time, best arm)


def rounds(world: World, rng: np.random.Generator) -> Iterator[tuple[float, float, float]]:
    """Yields noise of tokens, noise of seconds, and a uniform number for each round."""
    while True:
        tokens = rng.normal(1.0, 0.25, CHUNK).clip(0.1)
        seconds = rng.lognormal(-0.005, 0.1, CHUNK) + (rng.random(CHUNK) < 0.01) * 1.0  # now and then one takes twice
        yield from zip(tokens.tolist(), seconds.tolist(), rng.random(CHUNK).tolist(), strict=True)


def play(world: World, chooser: Chooser, num_rounds: int, seed: int) -> Outcome:
    """Runs one chooser through a world."""
    drawn = rounds(world, np.random.default_rng(seed))
    outcome, on_its_way = Outcome(history=[(0.0, chooser.best)]), deque([chooser.arm] * LAG_ROUNDS)
    now_s = lost_s = explored_s = 0.0
    num_sessions, is_slow = 8, False
    for _ in range(num_rounds):
        on_its_way.append(chooser.arm)
        arm, best = on_its_way.popleft(), chooser.best
        noise, stretch, luck = next(drawn)
        rate = world.rate(arm, now_s)
        seconds = ROUND_S * stretch * (2.0 if is_slow else 1.0) / (rate if world.in_pace else 1.0)
        steps = num_sessions**0.7
        easy = 1.5 if world.texts_s and (now_s // world.texts_s) % 2 else 1.0
        tokens = steps * easy * (1.0 if world.in_pace else rate) * (1.0 + (noise - 1.0) * math.sqrt(8 / num_sessions))
        if world.slow_s and luck < seconds / (world.slow_s if is_slow else world.calm_s):
            is_slow = not is_slow
        if world.bursts_s and 1.0 - luck < seconds / world.bursts_s:
            num_sessions = 10 - num_sessions
        most = max(world.rate(each, now_s) for each in world.rates)
        now_s += seconds
        lost_s += seconds * (1.0 - rate / most)
        explored_s += seconds * (chooser.arm is not best)
        chooser.observe(ArmRound(tokens, steps, seconds, num_sessions))
        if chooser.best is not best:
            outcome.num_changes += 1
            outcome.num_false += world.rate(chooser.best, now_s) <= world.rate(best, now_s)
            outcome.history.append((now_s, chooser.best))
    outcome.loss, outcome.explored, outcome.ended_with = lost_s / now_s, explored_s / now_s, chooser.best
    outcome.found_s = outcome.history[-1][0]
    return outcome


class Thompson:
    """The rival: each stretch takes the arm with the largest draw from what is known of the arms' rates (discounted).

    explore: at most this share of the time goes to other arms than the one of the largest mean; None: no limit.
    elasticity: how rates are believed to go with the number of sessions; in these worlds 0.7 is true.
    """

    def __init__(self, explore: float | None = 0.02, seed: int = 0, elasticity: float = 0.7) -> None:
        self.explore, self.elasticity = explore, elasticity
        self._random = np.random.default_rng(seed)
        self._levels: dict[Arm, deque[float]] = {arm: deque(maxlen=MEMORY) for arm in Arm}
        self.best = self.arm = Arm.MODEL
        self._stretch, self._credit_s = Stretch(), 0.0

    def observe(self, done: ArmRound) -> None:
        self._credit_s += (self.explore or 0.0) * done.seconds - done.seconds * (self.arm is not self.best)
        self._stretch.observe(done)
        if not self._stretch.is_over:
            return
        if rate := self._stretch.rate():
            self._levels[self.arm].append(math.log(rate.tokens_per_s / rate.num_sessions**self.elasticity))
        self._stretch = Stretch()
        few = [arm for arm in Arm if len(self._levels[arm]) < 12]
        self.arm = min(few, key=lambda arm: len(self._levels[arm])) if few else self._draw()
        if few:
            self._credit_s = 0.0

    def _draw(self) -> Arm:
        means = {arm: mean(levels) for arm, levels in self._levels.items()}
        spread = {arm: float(np.std(levels)) / math.sqrt(len(levels)) for arm, levels in self._levels.items()}
        self.best = max(means, key=lambda arm: means[arm])
        drawn = max(Arm, key=lambda arm: self._random.normal(means[arm], spread[arm]))
        return drawn if self.explore is None or self._credit_s > 0.0 else self.best


WORLDS: dict[str, dict[str, Any]] = {
    "constant": {},
    "in pace": {"in_pace": True},
    "busy now and then": {"slow_s": 5.0},
    "bursts": {"bursts_s": 3.0},
    "busy and bursts": {"slow_s": 5.0, "bursts_s": 3.0},
    "turns every 10 minutes": {"turns_s": 600.0},
}
CHOOSERS: dict[str, Callable[[int], Chooser]] = {
    "switchback": lambda seed: Arms(),
    "thompson": lambda seed: Thompson(0.02, seed),
    "thompson, wrong load": lambda seed: Thompson(0.02, seed, elasticity=1.0),
    "thompson, no limit": lambda seed: Thompson(None, seed),
    "always model": lambda seed: Arms(explore=0.0),
}


def rates(difference: float, best: Arm) -> dict[Arm, float]:
    """One arm is better than the other two by this share."""
    return {arm: 1.0 if arm is best else 1.0 - difference for arm in Arm}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    num_rounds, seeds = (20_000, range(2)) if quick else (60_000, range(6))
    for name, settings in WORLDS.items():
        for difference in (0.0, 0.03, 0.2, 0.5):
            world = World(rates(difference, Arm.NGRAM), **settings)
            for who, make in CHOOSERS.items():
                runs = [play(world, make(seed), num_rounds, seed) for seed in seeds]
                print(
                    f"{name:<24} {difference:>5.0%} {who:<20} loss {mean(one.loss for one in runs):6.2%} "
                    f"explored {mean(one.explored for one in runs):6.2%} "
                    f"changes {mean(one.num_changes for one in runs):6.2f} "
                    f"false {mean(one.num_false for one in runs):6.2f} "
                    f"ended with the best {mean(one.ended_with is Arm.NGRAM for one in runs):4.0%}",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
