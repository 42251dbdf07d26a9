"""Experiments with the ways of drafting: which of them brings the most worth-weighted tokens a second, measured.

No model of time knows that draft models share caches with the target, or that somebody else uses the machine. So the
verify node switches between its arms for short stretches (a switchback): a stretch of another arm lies between two of
the best one and is compared with their mean, which cancels a drift; the noise of such a comparison is measured on
stretches of one and the same arm. Only a significant difference changes the best arm.

Knows nothing about sessions, drafts or clocks: a round is its worth-weighted tokens and its seconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from verify_node.rounds.stretches import Stretch, StretchRate, log_ratio

SIGNIFICANCE = 2.5
"""Standard errors that a mean difference must exceed before it changes anything."""

MIN_TRIALS = 3
"""Comparisons that a decision rests on, at least."""

FIRST_TRIALS = 12
"""Each arm's first stretches, as long as its difference is not significant; they are not charged to `explore`."""

FORGETTING_S = 900.0
"""A comparison's weight falls by e in so many busy seconds: machines and texts change."""

LARGEST_STEP = 3.0
"""A comparison moves the mean as if it were at most so many standard deviations away: one stretch may have met
anything. Neighbours that are further apart than that say nothing about what lies between them."""

SURPRISED_WEIGHT = 2.0
"""What was known weighs no more than so many comparisons after one that is further away than LARGEST_STEP."""

MAX_LOAD_CHANGE = 1.25
"""A comparison of stretches whose numbers of sessions differ by more than this factor says nothing."""

FIRST_NOISE, FIRST_NOISE_WEIGHT, MAX_NOISE_WEIGHT = 0.15, 2.0, 60.0
"""The standard deviation of a comparison that is believed at first, as if from two, and how many are remembered."""

GAP_GROWTH, MAX_GAP = 2.0, 8.0
"""An arm that is known to be worse is tried after twice the gap each time, up to eight times the shortest one."""

MAX_CREDIT = 8.0
"""Unspent time for stretches of other arms is kept for so many of them."""


class Arm(StrEnum):
    """A way of drafting, in the order of effort."""

    NONE = "none"
    """Lengths 0, and no drafted token is verified."""

    NGRAM = "ngram"
    """Lengths 0; n-gram drafts that are there when a round is packed."""

    MODEL = "model"
    """Lengths of the policy; n-gram drafts for sessions at length 0."""


@dataclass(frozen=True)
class ArmReport:
    """What the experiments know of one arm."""

    arm: Arm
    relative_rate: float | None  # worth-weighted tokens per second over the best arm's; None: not compared yet
    standard_error: float | None  # of relative_rate, as a share of it
    num_stretches: int  # as an experiment
    share: float  # of all busy time


@dataclass(frozen=True)
class ArmsReport:
    """What the experiments found, for metrics, window and command line."""

    best: Arm
    explored_share: float  # of all busy time, first trials included
    num_changes: int  # of the best arm
    arms: tuple[ArmReport, ...]  # the available ones, in the order of effort


@dataclass(frozen=True)
class _Trial:
    """A stretch of an arm that is not the best one."""

    arm: Arm
    rate: StretchRate


@dataclass
class _Record:
    """What is known of one arm: the mean logarithm of its rate over the best arm's, by comparisons."""

    advantage: float = 0.0
    weight: float = 0.0  # comparisons, older ones weighing less
    weighed_s: float = 0.0  # busy time of `weight`
    num_stretches: int = 0
    tried_s: float = 0.0  # busy time of its last stretch as an experiment
    due_s: float = 0.0  # busy time before which it is not tried, where it is known to be worse
    gap: float = 1.0  # of the shortest gap
    seconds: float = 0.0

    def weight_at(self, now_s: float) -> float:
        return self.weight * math.exp((self.weighed_s - now_s) / FORGETTING_S)


class Arms:
    """The arm of each round, chosen by experiment.

    Everything is counted in busy seconds. Each arm has FIRST_TRIALS stretches that are free (fewer where the difference
    is significant sooner; a stretch has about 32 rounds); beyond them, stretches of other arms than the best take at
    most a share `explore` of the busy time. With `explore` 0 nothing is tried: the arm of most effort is taken, in
    which the model of time decides alone.
    """

    def __init__(self, explore: float = 0.02, available: Sequence[Arm] = tuple(Arm)) -> None:
        if not 0.0 <= explore < 1.0:
            raise ValueError(f"a share of the time must be at least 0 and less than 1, not {explore}")
        self.explore = explore
        self._available = _ordered(available)
        self._records = {arm: _Record() for arm in Arm}
        self._now_s = self._credit_s = self._explored_s = 0.0
        self._stretch_s = 0.0  # length of the last stretch
        self._noise, self._noise_weight = FIRST_NOISE, FIRST_NOISE_WEIGHT
        self._before: StretchRate | None = None  # the best arm's last stretch, if it told something
        self._trial: _Trial | None = None  # the stretch since then
        self._num_changes = 0
        self.best = self._available[-1]
        self._begin(self.best)

    @property
    def available(self) -> tuple[Arm, ...]:
        """Arms that can be taken, in the order of effort; `none` if nothing else can."""
        return self._available

    @available.setter
    def available(self, arms: Sequence[Arm]) -> None:
        """Takes effect with the next round. What is known of an arm that is left out is kept."""
        if (ordered := _ordered(arms)) == self._available:
            return
        self._available = ordered
        if self.best not in ordered or not self.explore:
            self._change_best(max(ordered, key=self._expected))
        if self.arm not in ordered:
            self._begin_anew()

    def observe(self, worth_tokens: float, seconds: float, num_sessions: int = 1) -> None:
        """Counts a finished round, and says by `arm` how the next one goes.

        worth_tokens: tokens delivered in it, each times its session's worth. seconds: wall time since the last round
        ended, or since the first session came if there was none in between; waiting for drafts is in it, time in which
        nobody asked for anything is not. num_sessions: those that the round served.
        """
        self._now_s += seconds
        self._credit_s += self.explore * seconds
        self._records[self.arm].seconds += seconds
        if self.arm is not self.best:
            self._explored_s += seconds
            if not self._is_free:
                self._credit_s -= seconds
        self._stretch.observe(worth_tokens, seconds, num_sessions)
        if self._stretch.is_over:
            self._end_stretch()

    def report(self) -> ArmsReport:
        total_s = max(self._now_s, 1e-9)
        return ArmsReport(
            best=self.best,
            explored_share=self._explored_s / total_s,
            num_changes=self._num_changes,
            arms=tuple(self._report(arm, total_s) for arm in self._available),
        )

    def _report(self, arm: Arm, total_s: float) -> ArmReport:
        record = self._records[arm]
        is_known = arm is self.best or record.weight > 0.0
        return ArmReport(
            arm=arm,
            relative_rate=math.exp(record.advantage) if is_known else None,
            standard_error=(0.0 if arm is self.best else self._error(record)) if is_known else None,
            num_stretches=record.num_stretches,
            share=record.seconds / total_s,
        )

    # -- stretches -----------------------------------------------------------------------------------------------------

    def _begin(self, arm: Arm) -> None:
        self._is_free = arm is not self.best and self._has_free_trials(arm)
        self._stretch = Stretch()
        self.arm = arm

    def _end_stretch(self) -> None:
        rate = self._stretch.rate()
        self._stretch_s = self._stretch.seconds
        if self.arm is not self.best:
            record = self._records[self.arm]
            record.num_stretches, record.tried_s = record.num_stretches + 1, self._now_s
            self._trial = _Trial(self.arm, rate) if rate else None
            self._begin(self.best)
            return
        if self._before and rate:
            self._compare(self._before, self._trial, rate)
        self._before, self._trial = rate, None
        self._follow_the_best()
        self._begin(self._next() if self._before else self.best)

    def _begin_anew(self) -> None:
        self._before = self._trial = None
        self._begin(self.best)

    def _compare(self, before: StretchRate, trial: _Trial | None, after: StretchRate) -> None:
        apart = log_ratio(after, before, MAX_LOAD_CHANGE)
        if apart is None:
            return
        is_quiet = abs(apart) <= LARGEST_STEP * self._noise * math.sqrt(4 / 3)
        self._learn_noise(apart * math.sqrt(3 / 4))  # two stretches differ by more than one from the mean of two
        if trial is None or not is_quiet:
            return
        first = log_ratio(trial.rate, before, MAX_LOAD_CHANGE)
        second = log_ratio(trial.rate, after, MAX_LOAD_CHANGE)
        if first is not None and second is not None:
            self._learn(trial.arm, (first + second) / 2)

    def _learn_noise(self, difference: float) -> None:
        """Smooths the absolute difference, which outliers move less than its square: 1.25 of it in a normal law."""
        self._noise_weight = min(self._noise_weight + 1.0, MAX_NOISE_WEIGHT)
        bounded = min(1.25 * abs(difference), LARGEST_STEP * self._noise)
        self._noise += (bounded - self._noise) / self._noise_weight

    def _learn(self, arm: Arm, difference: float) -> None:
        """Takes one comparison of an arm with the best one into its mean."""
        record = self._records[arm]
        weight = record.weight_at(self._now_s)
        step, bound = difference - record.advantage, LARGEST_STEP * self._noise
        if weight and abs(step) > bound:
            weight, step = min(weight, SURPRISED_WEIGHT), math.copysign(bound, step)
        record.weight, record.weighed_s = weight + 1.0, self._now_s
        record.advantage += step / record.weight
        is_worse = self._is_significant(record) and record.advantage < 0.0
        record.gap = min(record.gap * GAP_GROWTH, MAX_GAP) if is_worse else 1.0
        record.due_s = self._now_s + record.gap * self._shortest_gap_s() if is_worse else 0.0

    # -- decisions -----------------------------------------------------------------------------------------------------

    def _error(self, record: _Record) -> float:
        return self._noise / math.sqrt(max(record.weight_at(self._now_s), 1e-9))

    def _is_significant(self, record: _Record) -> bool:
        enough = record.weight_at(self._now_s) > MIN_TRIALS - 0.5  # they fade a little from one to the next
        return enough and abs(record.advantage) > SIGNIFICANCE * self._error(record)

    def _follow_the_best(self) -> None:
        better = [
            arm for arm in self._others() if self._is_significant(record := self._records[arm]) and record.advantage > 0
        ]
        if better and self.explore:
            self._change_best(max(better, key=lambda arm: self._records[arm].advantage))
            self._before = None

    def _change_best(self, new: Arm) -> None:
        """Makes another arm the best one, and refers what is known to it: differences add up, and so do variances."""
        if new is self.best:
            return
        reference, old = self._records[new], self.best
        weight, advantage = reference.weight_at(self._now_s), reference.advantage
        for arm, record in self._records.items():
            if arm is new:
                continue
            own = math.inf if arm is old else record.weight_at(self._now_s)
            record.advantage -= advantage
            record.weight = 1.0 / (1.0 / own + 1.0 / weight) if own and weight else 0.0
            record.weighed_s, record.gap, record.due_s = self._now_s, 1.0, 0.0
        reference.advantage = reference.weight = 0.0
        self.best = new
        self._num_changes += 1

    def _next(self) -> Arm:
        """The arm of the next stretch, after one of the best arm."""
        if free := [arm for arm in self._others() if self._has_free_trials(arm)]:
            return min(free, key=lambda arm: self._records[arm].num_stretches)
        self._credit_s = min(self._credit_s, MAX_CREDIT * self._stretch_s)
        due = [arm for arm in self._others() if self._records[arm].due_s <= self._now_s]
        if not due or self._credit_s < self._stretch_s or not self.explore:
            return self.best
        return min(due, key=lambda arm: self._records[arm].tried_s)

    def _has_free_trials(self, arm: Arm) -> bool:
        record = self._records[arm]
        return bool(self.explore) and record.num_stretches < FIRST_TRIALS and not self._is_significant(record)

    def _shortest_gap_s(self) -> float:
        return len(self._others()) * self._stretch_s / self.explore

    def _others(self) -> list[Arm]:
        return [arm for arm in self._available if arm is not self.best]

    def _expected(self, arm: Arm) -> tuple[float, int]:
        """What speaks for an arm before it is tried: what is known of it, if it is tried at all, then its effort."""
        known = self._records[arm].advantage if self.explore else 0.0
        return known, self._available.index(arm)


def _ordered(arms: Sequence[Arm]) -> tuple[Arm, ...]:
    return tuple(arm for arm in Arm if arm in arms) or (Arm.NONE,)
