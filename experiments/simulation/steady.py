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
    seconds: float  # virtual ones that were measured
    warm: int = 0  # tokens per client that were written before

    @property
    def total(self) -> float:
        return float(self.tokens_per_s.sum())

    @property
    def log_utility(self) -> float:
        return float(np.log(self.tokens_per_s).sum())


def steady(settings: Settings, stretch: Stretch, seed: int) -> Steady:
    """Measures a world with one session per client, which does not end."""
    most = 1 + settings.budget // settings.num_clients  # tokens of one client in a round, if all may draft equally
    length = SPARE * settings.num_clients * (stretch.warm + most * stretch.warm_rounds + stretch.measured)
    world_settings = replace(
        settings,
        num_sessions=1,
        num_at_once=1,
        min_tokens=length,
        max_tokens=length,
        stops=0.0,
        context_len=2 * length,
        page_size=PAGE_SIZE,
        num_pages=2 * length // PAGE_SIZE * settings.num_clients,
        max_sessions=settings.num_clients,
    )
    count = _Count(settings.num_clients, stretch)
    world = World(seed, world_settings, count.note)
    count.world = world
    while not count.over:
        world.clock.step()
    return count.result()


class _Count:
    """Counts tokens by client, from when all texts together are warm."""

    def __init__(self, num_clients: int, stretch: Stretch) -> None:
        self.world: World | None = None
        self.over = False
        self._stretch = stretch
        self._num_clients = num_clients
        self._total = self._num_rounds = self._warm = 0
        self._began: float | None = None
        self._index: dict[bytes, int] = {}
        self._tokens, self._drafted, self._verdicts = np.zeros((3, num_clients))

    def note(self, finished: Finished) -> None:
        assert self.world is not None
        now = finished.started + finished.duration_s
        self._num_rounds += 1
        for verdict in finished.verdicts:
            at = self._client(verdict.session_id)
            self._total += len(verdict.tokens)
            if self._began is not None:
                self._tokens[at] += len(verdict.tokens)
                self._drafted[at] += verdict.num_verified
                self._verdicts[at] += 1
        is_warm = (
            self._total >= self._num_clients * self._stretch.warm and self._num_rounds >= self._stretch.warm_rounds
        )
        if self._began is None and is_warm:
            self._began = now
            self._warm = max(self._stretch.warm, self._total // self._num_clients if self._stretch.warm_rounds else 0)
        self._ended = now
        self.over = self._began is not None and self._total >= self._num_clients * (self._warm + self._stretch.measured)

    def _client(self, session_id: bytes) -> int:
        assert self.world is not None
        if session_id not in self._index:
            self._index |= {key: draft.index for draft in self.world.drafts for key in draft.generations}
        return self._index[session_id]

    def result(self) -> Steady:
        assert self._began is not None
        seconds = self._ended - self._began
        drafted = self._drafted / np.maximum(self._verdicts, 1.0)
        return Steady(self._tokens / seconds, drafted, seconds, self._warm)
