"""LAPS-SD: least attained service, and once a text's speed is known, least perceived service.

K queues by service, as in `las`. A job is *perceptible* once its acceptance rate is stable; then its time T_i is known.

    higher queue first; in a queue perceptible jobs first, by the shortest T_i; the others likewise, or by arrival

A perceptible job lies in the queue of its perceived service, that is of what it has attained and T_i together ("put
requests in these queues according to their attained or perceptible inference service", section 1). It may be displaced
in one ranking, the first after it turned perceptible: without that, at batch size 1, whoever turns perceptible would
run on, and T_i would order nobody. After that it is never preempted. Nobody is before S_1 of service in one turn, so
that a job which aging brought forward gets somewhere. The paper leaves all three open.

In the paper a job that is not perceptible lies in the queue of what it has attained, by arrival (`guesses=False`). But
its length is predicted before it begins, so its time can be guessed. Taking that guess as its perceived service until a
better one is known made texts faster wherever lengths are predicted (`experiments/laps_sd.py`); it is the default.

Knows nothing about where lengths and rates come from.
"""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

from goodspeed.order.base import AGING_S, is_overdue, overdue_first, register
from goodspeed.order.job import Job
from goodspeed.order.queues import FIRST_S, GROWTH, NUM_QUEUES, Queues
from goodspeed.order.stability import NUM_ROUNDS, TOLERANCE, stable_rate

UNKNOWN_RATE = 0.7
"""What is guessed of a text that has drafted nothing yet; the verify node's own initial acceptance rate."""


class Size(NamedTuple):
    """What a ranking made of a job."""

    rate: float | None  # A_i; None while the job is not perceptible
    remaining_s: float  # T_i, with the best guess of A_i where the job is not perceptible
    level: int  # its queue


@register("laps")
class Laps:
    """Algorithm 1 of the paper; with one place and all sizes known it is shortest job first by time."""

    displaces = True
    ages = True

    def __init__(
        self,
        num_queues: int = NUM_QUEUES,
        growth: float = GROWTH,
        first_s: float = FIRST_S,
        num_rounds: int = NUM_ROUNDS,
        tolerance: float = TOLERANCE,
        aging_s: float = AGING_S,
        guesses: bool = True,
    ) -> None:
        """num_rounds: gamma; tolerance: delta. The others are K, M, S_1, and after how long a wait a job goes first.

        guesses: jobs that are not perceptible lie in the queue of the service that is guessed, the shortest first.
        """
        self.queues = Queues(num_queues, growth, first_s)
        self.num_rounds = num_rounds
        self.tolerance = tolerance
        self.aging_s = aging_s
        self.guesses = guesses
        self._sizes: dict[Hashable, Size] = {}  # of the last ranking
        self._perceptible: frozenset[Hashable] = frozenset()
        self._settled: frozenset[Hashable] = frozenset()  # perceptible in the last ranking and the one before

    def rank(self, jobs: Sequence[Job], now: float) -> list[Job]:
        self._sizes = {job.job_id: self._size(job) for job in jobs}
        before, self._perceptible = self._perceptible, frozenset(job.job_id for job in jobs if self._may_settle(job))
        self._settled = before & self._perceptible
        return sorted(jobs, key=lambda job: self._key(job, now))

    def yields(self, holder: Job, waiter: Job, now: float) -> bool:
        """To a higher queue, where what is left is more than the waiter's time and what coming back costs."""
        if holder.turn_s < self.queues.first_s or holder.job_id in self._settled:
            return False
        if is_overdue(waiter, now, self.aging_s):
            return True
        held, wanted = self._sizes[holder.job_id], self._sizes[waiter.job_id]
        return wanted.level < held.level and held.remaining_s > wanted.remaining_s + holder.recompute_s

    def standing(self, waiter: Job, now: float) -> tuple[float, ...]:
        size = self._sizes[waiter.job_id]
        return (-1.0, 0.0) if is_overdue(waiter, now, self.aging_s) else (size.level, size.remaining_s)

    def _size(self, job: Job) -> Size:
        """Its queue is by what it has attained, and what it is expected to need as far as that counts."""
        rate = stable_rate(job.rates, self.num_rounds, self.tolerance)
        guess = job.rates[-1] if job.rates else UNKNOWN_RATE
        remaining_s = job.remaining_s(guess if rate is None else rate)
        is_perceived = self.guesses or rate is not None
        return Size(rate, remaining_s, self.queues.level(job.attained_s + (remaining_s if is_perceived else 0.0)))

    def _may_settle(self, job: Job) -> bool:
        """Whether this is a ranking in which a perceptible job may be displaced, if it has a place at all."""
        return self._sizes[job.job_id].rate is not None and (not job.has_place or job.turn_s >= self.queues.first_s)

    def _key(self, job: Job, now: float) -> tuple[tuple[bool, float], int, bool, float, float]:
        rate, remaining_s, level = self._sizes[job.job_id]
        size = remaining_s if rate is not None or self.guesses else 0.0
        return overdue_first(job, now, self.aging_s), level, rate is None, size, job.arrived_at
