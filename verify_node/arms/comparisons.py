"""What comparisons of stretches say of arms: mean advantages over the best arm, and how sure they are.

An arm's rate is its gain (tokens per step) times its pace (steps per second). A stretch of another arm is compared in
pace with the mean of its two neighbours of the best arm, which cancels what changes slowly, and in gain with the best
arm's last ten stretches, since gains are noisy and those of plain decoding are not. How far the paces of two stretches
of one arm are apart tells the noise of such a comparison, whatever makes it. Knows nothing about when arms are tried,
or about clocks: busy seconds are passed in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from verify_node.arms.gains import RecentGain
from verify_node.arms.stretches import Elasticity, StretchRate

SIGNIFICANCE = 2.0
"""Standard errors that a mean difference must exceed before it changes anything."""

MIN_COMPARISONS = 3
"""Comparisons that a decision rests on, at least."""

FORGETTING_S = 3600.0
"""A comparison's weight falls by e in so many busy seconds: machines and texts change."""

LARGEST_STEP = 3.0
"""A comparison counts as at most so many standard deviations away from the mean: one stretch may have met anything.
Neighbours that are further apart than that say nothing about what lies between them."""

SURPRISED_WEIGHT = 2.0
"""What was known weighs no more than so many comparisons after one that is further away than LARGEST_STEP, and nothing
after a second one in the same direction."""

MAX_LOAD_CHANGE = 2.0
"""A comparison of stretches whose numbers of sessions differ by more than this factor says nothing."""

FIRST_ELASTICITY, FIRST_ELASTICITY_WEIGHT = 0.7, 0.5
"""The pace goes with the number of sessions to this power, as is believed at first; how firmly, in squared
logarithms."""

FIRST_NOISE, FIRST_NOISE_WEIGHT, MAX_NOISE_WEIGHT = 0.15, 2.0, 60.0
"""The standard deviation of a comparison that is believed at first, as if from two, and how many are remembered."""

OTHER_GAIN = 0.15
"""Logarithm by which the gains of two stretches of the best arm differ if they are of other texts."""

MIN_NOISE = 0.01
"""The standard deviation of a comparison is never believed to be smaller."""


class Arm(StrEnum):
    """A way of drafting, in the order of effort."""

    NONE = "none"
    """Lengths 0, and no drafted token is verified."""

    NGRAM = "ngram"
    """Lengths 0; n-gram drafts that are there when a round is packed."""

    MODEL = "model"
    """Draft models draft, unasked or at the policy's lengths; n-gram drafts for sessions at length 0."""


@dataclass
class Advantage:
    """The mean logarithm of an arm's rate over the best arm's."""

    mean: float = 0.0
    weight: float = 0.0  # comparisons, older ones weighing less; 0: nothing is known
    weighed_s: float = 0.0  # busy time of `weight`
    surprise: float = 0.0  # the last comparison was outside of what was expected: above (1), below (-1)
    gain_variance: float = 0.0  # of one comparison, beside that of its paces

    def weight_at(self, now_s: float) -> float:
        return self.weight * math.exp((self.weighed_s - now_s) / FORGETTING_S)

    def learn(self, difference: float, noise: float, now_s: float) -> None:
        """Takes one comparison into the mean. noise: its standard deviation."""
        weight, step = self.weight_at(now_s), difference - self.mean
        is_expected = not weight or abs(step) <= LARGEST_STEP * noise
        surprise = 0.0 if is_expected else math.copysign(1.0, step)
        if surprise and surprise == self.surprise:
            weight = 0.0
        elif surprise:
            weight, step = min(weight, SURPRISED_WEIGHT), surprise * LARGEST_STEP * noise
        self.weight, self.weighed_s, self.surprise = weight + 1.0, now_s, surprise
        self.mean += step / self.weight

    def refer_to(self, other: Advantage, now_s: float, *, is_reference: bool) -> None:
        """Makes this the advantage over another arm: differences add up, and so do variances.

        is_reference: this is the arm that advantages were over until now.
        """
        weight = other.weight_at(now_s)
        own = math.inf if is_reference else self.weight_at(now_s)
        self.weight = 1.0 / (1.0 / own + 1.0 / weight) if own and weight else 0.0
        self.mean = self.mean - other.mean if self.weight else 0.0
        self.weighed_s, self.surprise = now_s, 0.0
        self.gain_variance = max(self.gain_variance, other.gain_variance)


class Comparisons:
    """The advantages of all arms over the best one."""

    def __init__(self) -> None:
        self._recent = RecentGain()  # of the best arm
        self._advantages = {arm: Advantage() for arm in Arm}
        self._noise, self._noise_weight = FIRST_NOISE, FIRST_NOISE_WEIGHT
        self._elasticity = Elasticity(FIRST_ELASTICITY, FIRST_ELASTICITY_WEIGHT)

    def observe_best(self, rate: StretchRate) -> None:
        """Learns from a stretch of the best arm what its drafts bring now."""
        self._recent.observe(rate)

    def observe_same(self, before: StretchRate, after: StretchRate) -> bool:
        """Learns the noise from two stretches of the best arm. Returns whether they are alike enough for a comparison.

        The absolute difference is smoothed, which outliers move less than its square; in a normal law the standard
        deviation is 1.25 times its mean. Two stretches differ by more than one from the mean of two others.
        """
        if (apart := self._log_ratio(after, before)) is None:
            return False
        difference = abs(apart) * math.sqrt(3 / 4)
        is_alike = difference <= LARGEST_STEP * self._noise
        self._noise_weight = min(self._noise_weight + 1.0, MAX_NOISE_WEIGHT)
        bounded = max(min(1.25 * difference, LARGEST_STEP * self._noise), MIN_NOISE)
        self._noise += (bounded - self._noise) / self._noise_weight
        self._elasticity.observe(after, before)
        return is_alike

    def observe_other(self, arm: Arm, before: StretchRate, rate: StretchRate, after: StretchRate, now_s: float) -> None:
        """Learns from a stretch of another arm between two of the best one."""
        first, second = self._log_ratio(rate, before), self._log_ratio(rate, after)
        if first is None or second is None:
            return
        advantage = self._advantages[arm]
        variance = self._recent.variance_beside(rate)
        advantage.gain_variance += (variance - advantage.gain_variance) / (1.0 + advantage.weight_at(now_s))
        difference = (first + second) / 2 + math.log(rate.gain / self._recent.mean)
        advantage.learn(difference, math.sqrt(self._noise**2 + variance), now_s)

    def refer_to(self, new: Arm, old: Arm, now_s: float) -> None:
        """Makes another arm the best one, over which advantages are."""
        self._recent = RecentGain()
        for arm, advantage in self._advantages.items():
            if arm is not new:
                advantage.refer_to(self._advantages[new], now_s, is_reference=arm is old)
        self._advantages[new] = Advantage()

    def advantage(self, arm: Arm) -> float:
        """The logarithm of the arm's rate over the best arm's; 0 if nothing is known."""
        return self._advantages[arm].mean

    def error(self, arm: Arm, now_s: float) -> float:
        """The standard error of an advantage; infinite if nothing is known."""
        advantage = self._advantages[arm]
        weight = advantage.weight_at(now_s)
        return math.sqrt((self._noise**2 + advantage.gain_variance) / weight) if weight else math.inf

    def is_significant(self, arm: Arm, now_s: float) -> bool:
        is_enough = self._advantages[arm].weight_at(now_s) > MIN_COMPARISONS - 0.5  # they fade between two trials
        return is_enough and abs(self.advantage(arm)) > SIGNIFICANCE * self.error(arm, now_s)

    def is_better(self, arm: Arm, now_s: float) -> bool:
        """Whether the arm is significantly better than the best one so far."""
        return self.is_significant(arm, now_s) and self.advantage(arm) > 0.0

    def is_worse(self, arm: Arm, now_s: float) -> bool:
        """Whether the arm is significantly worse than the best one, and the last comparison agreed."""
        is_agreed = not self._advantages[arm].surprise
        return is_agreed and self.is_significant(arm, now_s) and self.advantage(arm) < 0.0

    def is_other(self, now: StretchRate, then: StretchRate) -> bool:
        """Whether two stretches of the best arm differ by more than noise, in what drafts bring, or in load."""
        difference = self._log_ratio(now, then)
        is_other_pace = difference is None or abs(difference) > LARGEST_STEP * self._noise
        return is_other_pace or abs(math.log(now.gain / then.gain)) > OTHER_GAIN

    def _log_ratio(self, one: StretchRate, other: StretchRate) -> float | None:
        """The logarithm of one pace over the other at equal load; None if the loads were too different."""
        load = math.log(one.num_sessions / other.num_sessions)
        if abs(load) > math.log(MAX_LOAD_CHANGE):
            return None
        return math.log(one.steps_per_s / other.steps_per_s) - self._elasticity.value * load
