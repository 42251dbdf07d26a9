"""Counts where a run's time went and what it brought, from its rounds as the verify node saw them.

Wall time is split as the paper splits it. *Receiving* is the verify node's wait for drafts to be made and to arrive,
*verifying* the rounds themselves, *sending* the time that verdicts and next lengths take on the verify node's line.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import log
from statistics import fmean, stdev
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import t as student

from experiments.simulation.nodes.surroundings import Finished
from experiments.simulation.settings import Settings
from experiments.simulation.world import World

LIMIT_S = 1e6


class Seen(NamedTuple):
    """A verdict."""

    at: float
    num_tokens: int
    round: int


@dataclass
class Accounts:
    """The counts of one run, which is fed every finished round."""

    num_rounds: int = 0
    receive_s: float = 0.0
    verify_s: float = 0.0
    send_s: float = 0.0
    num_drafted: int = 0
    verdicts: dict[bytes, list[Seen]] = field(default_factory=lambda: defaultdict(list))  # of each session
    _sent_s: float = 0.0  # of the round before: the wait for this one began with it

    def note(self, finished: Finished) -> None:
        self.num_rounds += 1
        self.receive_s += finished.waited_s - min(self._sent_s, finished.waited_s)
        self.verify_s += finished.duration_s
        self.send_s += finished.send_s
        self._sent_s = finished.send_s
        self.num_drafted += finished.round.num_drafted
        ended = finished.started + finished.duration_s + finished.work_s
        for verdict in finished.verdicts:
            self.verdicts[verdict.session_id].append(Seen(ended, len(verdict.tokens), finished.round.number))

    @property
    def wall_s(self) -> float:
        return self.receive_s + self.verify_s + self.send_s


@dataclass(frozen=True)
class Run:
    """A world's accounts, by client."""

    accounts: Accounts
    sessions: tuple[tuple[bytes, ...], ...]  # of each client, in order
    done_s: tuple[float, ...]  # when each client had all its tokens

    @property
    def num_tokens(self) -> int:
        return sum(self.client_tokens(client) for client in range(len(self.sessions)))

    def client_verdicts(self, client: int) -> list[Seen]:
        return [seen for key in self.sessions[client] for seen in self.accounts.verdicts[key]]

    def client_tokens(self, client: int) -> int:
        return sum(seen.num_tokens for seen in self.client_verdicts(client))

    def gaps(self, client: int) -> list[tuple[float, int]]:
        """Seconds from one verdict on a text to the next, and the tokens that it brought."""
        texts = [self.accounts.verdicts[key] for key in self.sessions[client]]
        return [(seen.at - before.at, seen.num_tokens) for text in texts for before, seen in pairwise(text)]

    @property
    def tokens_per_s(self) -> float:
        """The rate of all clients together, until the last one had everything."""
        return self.num_tokens / max(self.done_s)

    @property
    def goodputs(self) -> list[float]:
        """Tokens of each client per round that went by until it had all of them."""
        clients = range(len(self.sessions))
        return [
            self.client_tokens(client) / max(seen.round for seen in self.client_verdicts(client)) for client in clients
        ]

    @property
    def speeds(self) -> list[float]:
        """Tokens of each client per second until it had all of them."""
        return [self.client_tokens(client) / done_s for client, done_s in enumerate(self.done_s)]


def log_utility(rates: Sequence[float]) -> float:
    """The paper's U."""
    return sum(map(log, rates))


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean over seeds, and half of its 95 % confidence interval (Student's t); needs two of them."""
    half = float(student.ppf(0.975, len(values) - 1)) * stdev(values) / len(values) ** 0.5
    return fmean(values), half


def run(settings: Settings, seed: int) -> Run:
    """The world of that seed, from the first Hello until everybody has everything."""
    accounts = Accounts()
    world = World(seed, settings, accounts.note)
    world.run(LIMIT_S)
    sessions = tuple(
        tuple(generation.session.request.session_id for generation in draft.done) for draft in world.drafts
    )
    return Run(accounts, sessions, tuple(draft.done_at for draft in world.drafts))


def runs(make: Callable[..., Settings], seeds: int) -> list[Run]:
    """A run of each seed. make: takes it as `seed`."""
    return [run(make(seed=seed), seed) for seed in range(seeds)]


def expected_tokens(acceptance_rate: ArrayLike, length: ArrayLike) -> Any:
    """Returns the expected tokens of a draft of `length`: (1 - alpha^(S+1)) / (1 - alpha), or S + 1 at alpha = 1.

    Scalars give a float; arrays broadcast. Accurate for every alpha in [0, 1].
    """
    alpha = np.asarray(acceptance_rate, dtype=np.float64)
    positions = np.asarray(length, dtype=np.float64) + 1.0
    certain = alpha >= 1.0
    with np.errstate(divide="ignore"):  # log(0) = -inf is intended: no drafted token is ever accepted
        failed = -np.expm1(positions * np.log(np.where(certain, 0.5, alpha)))
    tokens = np.where(certain, positions, failed / np.where(certain, 1.0, 1.0 - alpha))
    return float(tokens) if tokens.ndim == 0 else tokens
