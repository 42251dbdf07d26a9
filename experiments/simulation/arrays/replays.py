"""The recorded domains as clients: their acceptance rates, their survival curves, and replay for the array path.

Client i is of domain i, by name; with fewer clients than domains the last ones are left out. It has all texts of its
domain at temperature 1, one after the other, as its own draft model proposes along them. The two draft models that
stand for a family's are dealt out in turn, or as Table I says.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.simulation.arrays.probabilities import IndependentDraws
from experiments.simulation.texts import proposals
from goodspeed.errors import ConfigError
from goodspeed.fair.policies.base import Floats, Ints

IN_TURN = (0, 1)
"""The smaller draft model for the first client, the larger one for the next."""


class Recorded(NamedTuple):
    """A client's texts with its own draft model."""

    paths: tuple[str, ...]  # of `Recordings.paths`
    off_path: float  # share of the tokens after a draft's first wrong one that agree again


def clients_of(num_clients: int, recordings: str = "", models: Sequence[int] = IN_TURN) -> list[Recorded]:
    """Returns each client's texts. recordings: a file; empty: the shipped one. models: of the clients, in turn, by
    `Recordings.stand_in`."""
    known = proposals.load(recordings)
    domains = sorted({text.domain for text in known.at(1.0)})
    if not 1 <= num_clients <= len(domains):
        raise ConfigError(
            f"there are {len(domains)} recorded domains, so 1 to {len(domains)} clients; not {num_clients}"
        )
    own = [known.stand_in(models[client % len(models)]) for client in range(num_clients)]
    paths = {model: known.paths(model) for model in set(own)}
    off_path = {model: known.off_path(model, 1.0).agreed for model in set(own)}
    return [Recorded(paths[model][name], off_path[model]) for model, name in zip(own, domains, strict=False)]


def alphas_of(clients: Sequence[Recorded]) -> Floats:
    """Share of the positions at which the draft model, all before being right, agrees [clients]."""
    return np.array([sum(path.count("1") for path in own.paths) / sum(map(len, own.paths)) for own in clients])


def curves_of(clients: Sequence[Recorded], longest: int) -> Floats:
    """Empirical survival curves [clients, longest]."""
    return np.array([survival(own.paths, longest) for own in clients])


def survival(own: Iterable[str], longest: int) -> tuple[float, ...]:
    """P(the first s drafted tokens are all accepted), s = 1..longest, over all positions that a draft may begin at.

    Where a text ends, a draft is counted as far as it goes (Kaplan and Meier's estimate).
    """
    reached, went_on = [0] * longest, [0] * longest
    for run, ended in (run for path in own for run in _runs(path)):
        for position in range(min(run, longest)):
            reached[position] += 1
            went_on[position] += 1
        if ended and run < longest:
            reached[run] += 1
    curve, chance = [], 1.0
    for num_reached, num_on in zip(reached, went_on, strict=True):
        chance *= num_on / num_reached if num_reached else 0.0
        curve.append(chance)
    return tuple(curve)


def _runs(path: str) -> Iterator[tuple[int, bool]]:
    """Yields for each position how many from there on agree, and whether a disagreement ended them."""
    run, ended = 0, False
    for agreed in reversed(path):
        run, ended = (run + 1, ended) if agreed == "1" else (0, True)
        yield run, ended


class Replays(IndependentDraws):
    """Agreement as it was recorded. Each world begins at a place of its own in each client's texts, by its seed."""

    def __init__(self, clients: Sequence[Recorded], longest: int, seeds: Sequence[int]) -> None:
        tables = [_table("".join(own.paths), longest, own.off_path) for own in clients]
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


def _table(path: str, longest: int, off_path: float) -> NDArray[np.float64]:
    """0, 1 or off_path, by the position at which a draft begins and the token's offset [positions, offsets]."""
    positions = np.arange(len(path))[:, None] + np.arange(longest)
    agreed = np.array(list(path), np.float64)[positions % len(path)]
    is_on_path = np.cumprod(np.pad(agreed[:, :-1], ((0, 0), (1, 0)), constant_values=1.0), axis=1) > 0
    return np.where(is_on_path, agreed, off_path)
