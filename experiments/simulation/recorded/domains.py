"""The recorded domains as clients: their acceptance rates, their survival curves, and replay for the array path.

Client i is of domain i, by name; with fewer clients than domains the last ones are left out. A domain is all its
recorded texts, one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from experiments.simulation.arrays.probabilities import IndependentDraws
from experiments.simulation.recorded.replay import Replayed, survival
from experiments.simulation.recordings import Agreement, load
from goodspeed.errors import ConfigError
from goodspeed.fair.policies.base import Floats, Ints


def texts_of(num_clients: int) -> list[list[Agreement]]:
    """Recorded texts, for each client."""
    agreements = load()
    domains = sorted({one.domain for one in agreements})
    if not 1 <= num_clients <= len(domains):
        raise ConfigError(
            f"there are {len(domains)} recorded domains, so 1 to {len(domains)} clients; not {num_clients}"
        )
    return [[one for one in agreements if one.domain == domain] for domain in domains[:num_clients]]


def alphas_of(texts: Sequence[Sequence[Agreement]]) -> Floats:
    """Share of the positions at which the draft model, all before being right, agrees [clients]."""
    paths = ["".join(one.path for one in own) for own in texts]
    return np.array([path.count("1") / (path.count("0") + path.count("1")) for path in paths])


def curves_of(texts: Sequence[Sequence[Agreement]], longest: int) -> Floats:
    """Empirical survival curves [clients, longest]."""
    return np.array([survival(own, longest) for own in texts])


class Replays(IndependentDraws):
    """Agreement as it was recorded. Each world begins at a place of its own in each client's texts, by its seed.

    What was not recorded is drawn at the text's own rate.
    """

    def __init__(self, texts: Sequence[Sequence[Agreement]], longest: int, seeds: Sequence[int]) -> None:
        tables = [np.concatenate([_table(text, longest) for text in own]) for own in texts]
        self._lengths = np.array([len(table) for table in tables])
        self._tables: Floats = np.zeros((len(tables), int(self._lengths.max()), longest))
        for filled, table in zip(self._tables, tables, strict=True):
            filled[: len(table)] = table
        self._survival: Floats = self._tables.cumprod(axis=2)
        super().__init__(np.zeros(len(tables)), seeds)
        starts = [np.random.default_rng(seed).random(len(tables)) for seed in seeds]
        self.starts: Ints = (np.array(starts) * self._lengths).astype(np.int64)  # [worlds, clients]

    def probabilities(self, owner: Ints, offset: Ints, base: Ints) -> Floats:
        places = (self.starts + base) % self._lengths
        probabilities: Floats = self._tables[owner % len(self._lengths), places.ravel()[owner], offset]
        return probabilities

    def survival(self, base: Ints) -> Floats:
        """Survival curves [clients, longest] of drafts that begin where the worlds are now, their mean."""
        places = (self.starts + base) % self._lengths
        curves: Floats = self._survival[np.arange(len(self._lengths)), places].mean(axis=0)
        return curves


def _table(text: Agreement, longest: int) -> NDArray[np.float64]:
    """0, 1 or a rate, by the position at which a draft begins and the token's offset in it [positions, offsets]."""
    replayed, length = Replayed(text), len(text.path)
    table = np.zeros((length, longest))
    for position in range(length):
        on_path = True
        for offset in range(longest):
            chance = replayed.rate(text.prompt_len + position + offset, offset, on_path)
            table[position, offset] = chance
            on_path = on_path and chance == 1.0
    return table
