"""Many worlds side by side, in barrier rounds as arrays: what takes too long by the state machines.

Every client has one endless session; lengths, observations and probes are those of `verify_node/scheduler/allocate.py`,
by the array forms of policies and estimators. A test shows that it agrees with the state machines bit for bit. Knows
nothing about time: probes come after PROBE_ROUNDS rounds, as where round trips are short.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from experiments.simulation.arrays.probabilities import Agreement
from experiments.simulation.arrays.rows import RowPolicy
from goodspeed.errors import ConfigError
from goodspeed.fair.estimators import FULL_DRAFT, INITIAL_ACCEPTANCE, SMALLEST_GOODPUT, SMALLEST_RATE
from goodspeed.fair.policies.base import Floats, Ints
from goodspeed.wire.fields import MAX_DRAFT
from verify_node.scheduler.allocate import INITIAL_GOODPUT, INITIAL_WORTH, PROBE_ROUNDS


@dataclass(frozen=True)
class ArraySettings:
    """Settings that all worlds share; all clients have weight 1."""

    num_clients: int
    budget: int
    eta: float = 0.1
    beta: float = 0.1
    num_worlds: int = 1
    weigh_evidence: bool = True


class Worlds:
    """All arrays are [worlds, clients]. The first round is the prompts': everybody gets one token, nobody drafts."""

    def __init__(self, settings: ArraySettings, policy: RowPolicy, agreement: Agreement) -> None:
        if min(settings.num_clients, settings.num_worlds, settings.budget) < 1:
            raise ConfigError(f"worlds need clients and a budget, 1 or more each, not {settings}")
        shape = (settings.num_worlds, settings.num_clients)
        self.settings = settings
        self.num_rounds = 0
        self.num_joined = settings.num_clients  # only the first so many are there yet
        self.lengths: Ints = np.zeros(shape, dtype=np.int64)  # of the next drafts
        self.drafted = np.zeros_like(self.lengths)  # in the last round
        self.accepted = np.zeros_like(self.lengths)  # of these
        self.num_tokens = np.zeros_like(self.lengths)  # delivered so far
        self.acceptance = np.full(shape, INITIAL_ACCEPTANCE)
        self.worth = np.full(shape, INITIAL_WORTH)  # drafted tokens that `acceptance` rests on
        self.goodput = np.full(shape, INITIAL_GOODPUT)
        self._zero_since = np.full(shape, -1)  # round since which a client waits for a probe, or -1
        self._weights = np.ones(shape)
        self._caps = np.full(shape, min(MAX_DRAFT, settings.budget))
        self._policy = policy
        self._agreement = agreement

    def step(self) -> None:
        """Runs one round: verify, observe, allocate."""
        self.num_rounds += 1
        num_agreed = self._verify()
        joined = np.s_[:, : self.num_joined]
        tokens = self.accepted[joined] + 1
        self.num_tokens[joined] += tokens
        eta, beta, drafted = self.settings.eta, self.settings.beta, self.drafted[joined]
        worth = self.worth[joined] if self.settings.weigh_evidence else None
        self.acceptance[joined] = observe_acceptance(self.acceptance[joined], eta, num_agreed[joined], drafted, worth)
        self.worth[joined] += drafted
        self.goodput[joined] = observe_goodput(self.goodput[joined], beta, tokens)
        lengths = np.zeros_like(self.lengths)
        lengths[joined] = self._allocate(joined)
        self.lengths = lengths

    def run(self, num_rounds: int) -> None:
        for _ in range(num_rounds):
            self.step()

    def _verify(self) -> Floats:
        """Sets `drafted` and `accepted`; gives how many drafted tokens agreed."""
        self.drafted = self.lengths
        nums = self.drafted.ravel()
        first = nums.cumsum() - nums
        owner = np.repeat(np.arange(nums.size), nums)  # [drafted tokens]
        offset = np.arange(owner.size) - first[owner]
        agrees = self._agreement(self.num_rounds, owner, offset, self.num_tokens)
        failed = np.flatnonzero(~agrees)[::-1]  # the last one written is a draft's first
        accepted = nums.copy()
        accepted[owner[failed]] = offset[failed]
        self.accepted = accepted.reshape(self.drafted.shape)
        return np.bincount(owner[agrees], minlength=nums.size).reshape(self.drafted.shape).astype(np.float64)

    def _allocate(self, joined: tuple[slice, slice]) -> Ints:
        """Probes come out of the budget; the rest is the policy's."""
        waiting = self._zero_since[joined]
        due = (waiting >= 0) & (self.num_rounds - waiting >= PROBE_ROUNDS)
        due &= due.cumsum(axis=1) <= self.settings.budget
        lengths = self._policy.allocate(
            self.acceptance[joined],
            self.goodput[joined],
            self._weights[joined],
            self._caps[joined],
            self.settings.budget - due.sum(axis=1),
        )
        lengths = np.where(due, np.maximum(lengths, 1), lengths)
        self._zero_since[joined] = np.where(lengths > 0, -1, np.where(waiting < 0, self.num_rounds, waiting))
        return lengths


# -- the arithmetic of `goodspeed/fair/estimators.py`, bit for bit ----------------------------------------------------


def observe_acceptance(
    value: Floats, eta: float, agreement: Floats, num_drafted: ArrayLike, worth: Floats | None = None
) -> Floats:
    """`AcceptanceEstimator.observe` for many clients: returns the new values; all shapes are [clients].

    The caller adds `num_drafted` to `worth` afterwards.
    """
    drafted = np.asarray(num_drafted)
    step: Any = eta
    if worth is not None:
        step = np.maximum(eta * np.minimum(drafted / FULL_DRAFT, 1.0), drafted / (worth + drafted))
    moved = (1.0 - step) * value + step * (agreement / np.maximum(drafted, 1))
    kept: Floats = np.where(drafted > 0, np.clip(moved, SMALLEST_RATE, 1.0 - SMALLEST_RATE), value)
    return kept


def observe_goodput(value: Floats, beta: float, tokens: ArrayLike) -> Floats:
    """`GoodputEstimator.observe` of one round for many clients: returns the new values, shape [clients]."""
    keep = 1.0 - beta
    moved: Floats = keep * value + (1.0 - keep) * np.asarray(tokens)
    return np.maximum(moved, SMALLEST_GOODPUT)
