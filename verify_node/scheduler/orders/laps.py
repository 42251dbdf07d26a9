"""LAPS-SD: an order by attained service, and once a text's speed is known, by its remaining time."""

from bisect import bisect_right
from collections import deque
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from goodspeed.fair.estimators import INITIAL_ACCEPTANCE
from verify_node.scheduler.orders.base import AGING_S, ORDERS, Job, Order

FIRST_S = 0.5
"""S_1, in seconds: about the first ten rounds of a text, when little must be recomputed after a preemption."""

BOUNDS = (FIRST_S, 4 * FIRST_S, 16 * FIRST_S)
"""Seconds of service at which the next queue begins: K = 4 queues, M = 4. So a text moves down at most three times."""

NUM_ROUNDS = 8
"""gamma: rounds over which a stable rate hardly changes; the paper states none."""

TOLERANCE = 0.05
"""delta: bound on the change of a stable rate over these rounds; the paper states none."""

WINDOW = 64
"""Rounds that a rate is computed over. A change of the text shows after some of them."""


def stable_rate(rates: Sequence[float], num_rounds: int, tolerance: float) -> float | None:
    """Returns A_i: the mean of the newest `num_rounds` rates if they differ by less than `tolerance`; else None."""
    last = rates[-num_rounds:]
    if len(last) < num_rounds or max(last) - min(last) >= tolerance:
        return None
    return sum(last) / num_rounds


class RateHistory:
    """The acceptance rate of one text, accepted / drafted over its newest rounds, after each draft."""

    def __init__(self) -> None:
        self._drafts: deque[tuple[int, int]] = deque(maxlen=WINDOW)
        self._rates: deque[float] = deque(maxlen=NUM_ROUNDS)
        self._num_accepted = self._num_drafted = 0

    def observe(self, num_accepted: int, num_drafted: int) -> None:
        """Updates the rate with one round's draft. A round without a draft adds no rate, but lowers `num_drafted`."""
        if len(self._drafts) == self._drafts.maxlen:
            accepted, drafted = self._drafts[0]
            self._num_accepted -= accepted
            self._num_drafted -= drafted
        self._drafts.append((num_accepted, num_drafted))
        self._num_accepted += num_accepted
        self._num_drafted += num_drafted
        if num_drafted:
            self._rates.append(self._num_accepted / self._num_drafted)

    @property
    def rates(self) -> tuple[float, ...]:
        return tuple(self._rates)

    @property
    def num_drafted(self) -> float:
        """n: mean number of drafted tokens in a round; 0 before the first."""
        return self._num_drafted / len(self._drafts) if self._drafts else 0.0


class Size(NamedTuple):
    """A job in the latest ranking."""

    rate: float | None  # A_i; None while the job is not perceptible
    remaining_s: float  # T_i, from the best guess of A_i if the job is not perceptible
    level: int  # its queue


@ORDERS.register("laps")
class Laps(Order):
    """LAPS-SD: least attained service, and once a text's speed is known, least perceived service (Algorithm 1).

    K queues by service, S_j = M^(j-1) S_1 (section 4.2). A job is *perceptible* while its acceptance rate is stable (in
    the paper: once it was); then its remaining time T_i is known.

        higher queue first; in a queue perceptible jobs first; among these and among the others the shortest T_i first

    A perceptible job's queue is that of its perceived service, the sum of attained service and T_i ("put requests in
    these queues according to their attained or perceptible inference service", section 1). A job may be displaced in
    one ranking after it turned perceptible, the first, and not again while it stays so: otherwise, at batch size 1,
    each job that turns perceptible would run on, and T_i would order none. No job is displaced before S_1 of service in
    one turn, so that a job brought forward by aging makes progress. The paper leaves all three points open.

    In the paper a job that is not perceptible is queued by attained service, then by arrival (`guesses = False`). But
    its length is predicted before it begins, so its time can be guessed. Using the guess as perceived service until a
    better one is known made texts faster wherever lengths are predicted (`experiments/laps_sd.py`), so that is done
    here.
    """

    displaces = True

    # The paper's parameters; experiments replace them.
    bounds = BOUNDS
    num_rounds = NUM_ROUNDS
    tolerance = TOLERANCE
    aging_s = AGING_S
    guesses = True  # jobs that are not perceptible are queued by guessed service, the shortest first

    def __init__(self) -> None:
        self._sizes: dict[Hashable, Size] = {}  # of the latest ranking
        self._perceptible: frozenset[Hashable] = frozenset()
        self._settled: frozenset[Hashable] = frozenset()  # perceptible in the latest ranking and the previous one

    def level(self, service_s: float) -> int:
        """Returns the number of the queue for jobs with this service, in seconds; 0 is the highest queue."""
        return bisect_right(self.bounds, service_s)

    def rank(self, jobs: Sequence[Job], now: float) -> list[Job]:
        self._sizes = {job.job_id: self._size(job) for job in jobs}
        before, self._perceptible = self._perceptible, frozenset(job.job_id for job in jobs if self._may_settle(job))
        self._settled = before & self._perceptible
        return sorted(jobs, key=lambda job: self._key(job, now))

    def yields(self, holder: Job, waiter: Job, now: float) -> bool:
        """True if the waiter is overdue, or its queue is higher and its T_i + holder.recompute_s < the holder's T_i."""
        if holder.turn_s < self.bounds[0] or holder.job_id in self._settled:
            return False
        if waiter.is_overdue(now, self.aging_s):
            return True
        held, wanted = self._sizes[holder.job_id], self._sizes[waiter.job_id]
        return wanted.level < held.level and held.remaining_s > wanted.remaining_s + holder.recompute_s

    def _size(self, job: Job) -> Size:
        """Computes the job's queue from attained service, plus its expected service where that counts."""
        rate = stable_rate(job.rates, self.num_rounds, self.tolerance)
        guess = job.rates[-1] if job.rates else INITIAL_ACCEPTANCE
        remaining_s = job.remaining_s(guess if rate is None else rate)
        is_perceived = self.guesses or rate is not None
        return Size(rate, remaining_s, self.level(job.attained_s + (remaining_s if is_perceived else 0.0)))

    def _may_settle(self, job: Job) -> bool:
        """True if the job is perceptible and, if it has a place, has had S_1 in this turn.

        In the first ranking for which this is true it may be displaced; after that it is settled.
        """
        return self._sizes[job.job_id].rate is not None and (not job.has_place or job.turn_s >= self.bounds[0])

    def _key(self, job: Job, now: float) -> tuple[tuple[bool, float], int, bool, float, float]:
        rate, remaining_s, level = self._sizes[job.job_id]
        size = remaining_s if rate is not None or self.guesses else 0.0
        return job.overdue_first(now, self.aging_s), level, rate is None, size, job.arrived_at
