"""Measures how quickly texts grow once a world has settled.

Whether a drafted token agrees is a function of the seed and the text alone, so two worlds with the same seed that are
measured over the same stretch of their texts meet the same luck: what differs is what was to be compared.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from experiments.simulation.nodes.surroundings import Finished
from experiments.simulation.settings import Settings
from experiments.simulation.world import World

PAGE_SIZE = 64
SPARE = 2  # how many times longer texts are than all that is measured, since some clients are faster than others


@dataclass(frozen=True)
class Stretch:
    """The measured part of the texts, in tokens per client on average."""

    warm: int
    measured: int
    warm_rounds: int = 0  # at least, before it is measured


@dataclass(frozen=True)
class Steady:
    """Figures of a settled world; arrays [clients]."""

    tokens_per_s: NDArray[np.float64]
    drafted: NDArray[np.float64]  # tokens per verdict
    warm: int = 0  # tokens per client that were written before

    @property
    def total(self) -> float:
        return float(self.tokens_per_s.sum())

    @property
    def log_utility(self) -> float:
        return float(np.log(self.tokens_per_s).sum())


def steady(settings: Settings, stretch: Stretch, seed: int) -> Steady:
    """Measures a world with one session per client, which does not end."""
    num = settings.num_clients
    most = 1 + settings.budget // num  # tokens of one client in a round, if all may draft equally
    length = SPARE * num * (stretch.warm + most * stretch.warm_rounds + stretch.measured)
    world_settings = replace(
        settings,
        num_sessions=1,
        num_at_once=1,
        min_tokens=length,
        max_tokens=length,
        stops=0.0,
        context_len=2 * length,
        page_size=PAGE_SIZE,
        num_pages=2 * length // PAGE_SIZE * num,
        max_sessions=num,
    )
    clients: dict[bytes, int] = {}  # by session
    counted = np.zeros((3, num))  # tokens, drafted tokens and verdicts of each client, from when all texts are warm
    total = num_rounds = warm = 0
    began: float | None = None
    ended = 0.0

    def note(finished: Finished) -> None:
        nonlocal total, num_rounds, warm, began, ended
        ended = finished.started + finished.duration_s
        num_rounds += 1
        for verdict in finished.verdicts:
            total += len(verdict.tokens)
            if verdict.session_id not in clients:
                clients.update({key: draft.index for draft in world.drafts for key in draft.generations})
            if began is not None:
                counted[:, clients[verdict.session_id]] += len(verdict.tokens), verdict.num_verified, 1
        if began is None and total >= num * stretch.warm and num_rounds >= stretch.warm_rounds:
            began, warm = ended, max(stretch.warm, total // num if stretch.warm_rounds else 0)

    world = World(seed, world_settings, note)
    while began is None or total < num * (warm + stretch.measured):
        world.clock.step()
    tokens, drafted, verdicts = counted
    return Steady(tokens / (ended - began), drafted / np.maximum(verdicts, 1.0), warm)
