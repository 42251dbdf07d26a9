"""Experiments with the ways of drafting: which of them brings the most worth-weighted tokens a second, measured.

No model of time knows that draft models share caches with the target, or that somebody else uses the machine. So the
verify node switches between its arms for short stretches (a switchback): a stretch of another arm lies between two of
the best one and is compared with them. Only a significant difference changes the best arm.

Knows nothing about sessions, drafts or clocks: a round is an `ArmRound`.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from verify_node.arms.comparisons import Arm, Comparisons
from verify_node.arms.stretches import ArmRound, Stretch, StretchRate

FIRST_TRIALS = 24
"""Each arm's first stretches, as long as its difference is not significant; they are not charged to `explore`."""

FIRST_SHARE = 0.1
"""First trials take at most this share of the busy time so far: a node that has just started is to be of use, too."""

GAP_GROWTH, MAX_GAP = 2.0, 4.0
"""An arm that is known to be worse is tried after twice the gap each time, up to four times the shortest one."""

CHANGED_STRETCHES = 8
"""It is also tried once so many stretches of the best arm in a row had another rate or load than beside its last trial:
something is different, and not for a moment only."""

HOPELESS, HOPELESS_ROUNDS = 0.5, 6
"""A trial that brings less than this share of the best arm's rate after so many counted rounds ends there."""

MAX_CREDIT = 12.0
"""Time for stretches of other arms that was not spent is kept for so many of them."""


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
    arms: tuple[ArmReport, ...]  # those that there are, in the order of effort


@dataclass(frozen=True)
class _Trial:
    """A stretch of an arm that is not the best one."""

    arm: Arm
    rate: StretchRate


@dataclass
class _Record:
    """When an arm was tried, and when it is to be tried again."""

    seconds: float = 0.0  # under this arm, as the best one or not
    num_stretches: int = 0  # as an experiment
    tried_s: float = 0.0  # busy time of the last of them
    beside: StretchRate | None = None  # the best arm's stretch before it
    num_other: int = 0  # stretches of the best arm in a row, up to the last, that were not like it
    due_s: float = 0.0  # busy time before which it is not tried
    gap: float = 1.0  # until then, in shortest gaps

    def make_due(self) -> None:
        self.due_s, self.gap = 0.0, 1.0


class Arms:
    """The arm of each round, chosen by experiment.

    Everything is counted in busy seconds. Each arm's first FIRST_TRIALS stretches are free (fewer where the difference
    is significant sooner; a stretch has about 32 rounds); beyond them, stretches of other arms than the best take at
    most a share `explore` of the busy time. With `explore` 0 nothing is tried: the arm of most effort is taken, in
    which the model of time decides alone.
    """

    def __init__(self, explore: float = 0.02, available: Collection[Arm] = tuple(Arm), first: Arm = Arm.MODEL) -> None:
        """available: the arms that there are, at least one; of one alone nothing is tried.

        first: the best arm until one is found to be better, if anything is tried; that of most effort if there is no
        such arm.
        """
        if not 0.0 <= explore < 1.0:
            raise ValueError(f"a share of the time must be at least 0 and less than 1, not {explore}")
        self.explore = explore
        self._available = tuple(arm for arm in Arm if arm in available)  # in the order of effort
        self._comparisons = Comparisons()
        self._records = {arm: _Record() for arm in self._available}
        self._now_s = self._credit_s = self._explored_s = 0.0
        self._stretch_s = 0.0  # length of the last stretch
        self._before: StretchRate | None = None  # the best arm's last stretch, if it told something
        self._trial: _Trial | None = None  # the stretch since then
        self._num_changes = 0
        self._best = first if explore and first in self._available else self._available[-1]
        self._begin(self._best)

    @property
    def arm(self) -> Arm:
        """The arm of the next round."""
        return self._arm

    @property
    def best(self) -> Arm:
        """The arm of all rounds that are no experiment."""
        return self._best

    def observe(self, done: ArmRound) -> None:
        """Counts a finished round, after which `arm` says how the next one goes."""
        self._now_s += done.seconds
        self._credit_s += self.explore * done.seconds
        self._records[self._arm].seconds += done.seconds
        if self._arm is not self._best:
            self._explored_s += done.seconds
            self._credit_s -= 0.0 if self._is_free else done.seconds
        self._stretch.observe(done)
        if self._stretch.is_over or self._is_hopeless():
            self._end_stretch()

    def resume(self) -> None:
        """Rounds that were not counted here lie between the last one and the next: what was going on begins anew.

        A trial that is cut short counts as one: else free trials would go on for ever where none is completed.
        """
        if self._arm is not self._best:
            self._count_trial()
        self._before = self._trial = None
        self._begin(self._best)

    def report(self) -> ArmsReport:
        return ArmsReport(
            best=self._best,
            explored_share=self._explored_s / self._now_s if self._now_s else 0.0,
            num_changes=self._num_changes,
            arms=tuple(self._report(arm) for arm in self._available),
        )

    def _report(self, arm: Arm) -> ArmReport:
        record, error = self._records[arm], self._comparisons.error(arm, self._now_s)
        is_known = arm is self._best or error < math.inf
        return ArmReport(
            arm=arm,
            relative_rate=math.exp(self._comparisons.advantage(arm)) if is_known else None,
            standard_error=(0.0 if arm is self._best else error) if is_known else None,
            num_stretches=record.num_stretches,
            share=record.seconds / self._now_s if self._now_s else 0.0,
        )

    # -- stretches -----------------------------------------------------------------------------------------------------

    def _begin(self, arm: Arm) -> None:
        self._is_free = arm is not self._best and self._has_free_trials(arm)
        self._stretch = Stretch()
        self._arm = arm

    def _is_hopeless(self) -> bool:
        """Whether what is tried is so bad that the rest of its stretch would tell nothing more."""
        if self._arm is self._best or self._before is None or self._stretch.num_counted < HOPELESS_ROUNDS:
            return False
        rate = self._stretch.rate()
        return rate is not None and rate.tokens_per_s < HOPELESS * self._before.tokens_per_s

    def _end_stretch(self) -> None:
        rate, self._stretch_s = self._stretch.rate(), self._stretch.seconds
        if self._arm is not self._best:
            self._end_trial(rate)
        else:
            self._end_of_best(rate)

    def _end_trial(self, rate: StretchRate | None) -> None:
        record = self._count_trial()
        record.beside, record.num_other = self._before, 0
        self._trial = _Trial(self._arm, rate) if rate else None
        self._begin(self._best)

    def _count_trial(self) -> _Record:
        record = self._records[self._arm]
        record.num_stretches += 1
        record.tried_s = self._now_s
        return record

    def _end_of_best(self, rate: StretchRate | None) -> None:
        """Learns from the best arm's stretch, the one before it and what was tried between them; goes on with both."""
        before, trial = self._before, self._trial
        self._before, self._trial = rate, None
        if rate:
            self._comparisons.observe_best(rate)
        if before and rate:
            is_alike = self._comparisons.observe_same(before, rate)
            if trial and is_alike:
                self._comparisons.observe_other(trial.arm, before, trial.rate, rate, self._now_s)
                self._set_gap(trial.arm)
        if rate:
            self._notice_changes(rate)
        self._follow_the_best()
        self._begin(self._next() if self._before else self._best)

    def _notice_changes(self, rate: StretchRate) -> None:
        """Makes arms due whose last trial was under other circumstances than the best arm's last stretches."""
        for record in self._records.values():
            is_other = record.beside is not None and self._comparisons.is_other(rate, record.beside)
            record.num_other = record.num_other + 1 if is_other else 0
            if record.num_other >= CHANGED_STRETCHES:
                record.make_due()

    def _set_gap(self, arm: Arm) -> None:
        record = self._records[arm]
        if self._comparisons.is_worse(arm, self._now_s):
            record.gap = min(record.gap * GAP_GROWTH, MAX_GAP)
            record.due_s = self._now_s + record.gap * len(self._others()) * self._stretch_s / self.explore
        else:
            record.make_due()

    # -- decisions -----------------------------------------------------------------------------------------------------

    def _follow_the_best(self) -> None:
        if better := [arm for arm in self._others() if self._comparisons.is_better(arm, self._now_s)]:
            self._change_best(max(better, key=self._comparisons.advantage))

    def _change_best(self, new: Arm) -> None:
        self._comparisons.refer_to(new, self._best, self._now_s)
        for record in self._records.values():
            record.beside = None
            record.make_due()
        self._best = new
        self._before = self._trial = None
        self._num_changes += 1

    def _next(self) -> Arm:
        """The arm of the next stretch, after one of the best arm."""
        others = self._others()
        if free := [arm for arm in others if self._has_free_trials(arm)]:
            return min(free, key=lambda arm: self._records[arm].num_stretches)
        self._credit_s = min(self._credit_s, MAX_CREDIT * self._stretch_s)
        due = [arm for arm in others if self._records[arm].due_s <= self._now_s]
        if not due or self._credit_s < self._stretch_s:
            return self._best
        return min(due, key=lambda arm: self._records[arm].tried_s)

    def _has_free_trials(self, arm: Arm) -> bool:
        is_open = not self._comparisons.is_significant(arm, self._now_s)
        is_little = self._explored_s + self._stretch_s <= FIRST_SHARE * self._now_s
        return is_open and is_little and self._records[arm].num_stretches < FIRST_TRIALS

    def _others(self) -> list[Arm]:
        """Arms that may be tried beside the best one."""
        return [arm for arm in self._available if arm is not self._best] if self.explore else []
