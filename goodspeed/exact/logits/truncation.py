"""Top-k and top-p truncation of rows of logits on a CPU: `Kept` lists the retained tokens, without torch.

Listing a few tokens out of thousands saves all work on the others. Top-p retains the fewest of the top-k tokens whose
probabilities (scaled to 1) sum to at least top_p. It also retains tokens exactly as likely as the least likely of
these, so that a device's sort order of equals does not matter. A row's result depends on that row alone. A token with
logit -inf is never retained.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32] | NDArray[np.float64]


class Sampling(Protocol):
    """The sampling parameters of a row; the wire's `messages.Sampling` has this interface. Off: top_k 0, top_p 1.0."""

    @property
    def temperature(self) -> float: ...

    @property
    def top_k(self) -> int: ...

    @property
    def top_p(self) -> float: ...

    @property
    def seed(self) -> int: ...


@dataclass(frozen=True)
class Kept:
    """All retained tokens of a batch: their rows (ascending), ids and probabilities."""

    rows: NDArray[np.int64]  # [num_kept]
    tokens: NDArray[np.int64]  # [num_kept]
    probs: Floats  # [num_kept]

    @classmethod
    def of(cls, logits: Floats, samplings: Sequence[Sampling]) -> "Kept":
        """Truncates logits [rows, vocab]; a row with NaN or inf logits may retain no token."""
        with np.errstate(invalid="ignore"):  # infinite logits have no probabilities
            least = _least(logits, samplings)
            places = np.flatnonzero(logits >= least[:, None])  # a quarter of the time of `nonzero`
            rows, tokens = np.divmod(places, logits.shape[-1])
            weights = np.exp(logits.ravel()[places] - logits.max(-1)[rows])
        sums = np.bincount(rows, weights, minlength=len(logits))
        return cls(rows, tokens, (weights / sums[rows]).astype(logits.dtype))

    def first(self, scores: Floats, num_rows: int) -> NDArray[np.int64]:
        """Returns each row's token with the largest score [num_rows]; lowest id among equals. scores: [num_kept]."""
        best = np.full(num_rows, -1, scores.dtype)
        with np.errstate(invalid="ignore"):
            np.maximum.at(best, self.rows, scores)
        winners = np.flatnonzero(scores == best[self.rows])[::-1]  # descending: the lowest id is written last and stays
        tokens = np.zeros(num_rows, np.int64)
        tokens[self.rows[winners]] = self.tokens[winners]
        return tokens


def _least(logits: Floats, samplings: Sequence[Sampling]) -> Floats:
    """Returns the smallest retained logit of each row [rows]."""
    vocab = logits.shape[-1]
    least = np.full(len(logits), -np.inf, logits.dtype)
    limited = [i for i, sampling in enumerate(samplings) if 0 < sampling.top_k < vocab]
    if limited:  # with fewer than top_k finite logits, the k-th is -inf
        least[limited] = np.maximum(_least_of_top_k(logits, limited, samplings), np.finfo(logits.dtype).min)
    for i, sampling in enumerate(samplings):
        if sampling.top_p < 1 and not 0 < sampling.top_k < vocab:
            least[i] = _least_of_top_p(logits[i], sampling.top_p)
    return least


def _least_of_top_k(logits: Floats, rows: list[int], samplings: Sequence[Sampling]) -> Floats:
    chosen = logits if len(rows) == len(logits) else logits[rows]
    counts = np.array([samplings[i].top_k for i in rows])
    rest = chosen.shape[-1] - int(counts.max())
    ordered = np.sort(np.partition(chosen, rest, axis=-1)[:, rest:], axis=-1)[:, ::-1]  # [rows, most], descending
    last = counts - 1
    top_p = np.array([samplings[i].top_p for i in rows])
    if (top_p < 1).any():
        mass = np.exp(ordered - ordered[:, :1]).cumsum(-1, dtype=np.float64)
        reached = (mass < (top_p * mass[np.arange(len(rows)), last])[:, None]).sum(-1)
        last = np.where(top_p < 1, np.minimum(reached, last), last)
    found: Floats = ordered[np.arange(len(rows)), last]
    return found


def _least_of_top_p(row: Floats, top_p: float) -> float:
    """Returns the smallest retained logit.

    Sorts only tokens with probability (1 - top_p) / vocab or more: the others sum to less than 1 - top_p.
    """
    largest = row.max()
    weights = np.exp(row - largest)
    total = float(weights.sum(dtype=np.float64))
    likely = row[weights >= total * (1 - top_p) / len(row)]
    if not len(likely):
        return float(largest)
    ordered = np.sort(likely)[::-1]
    mass = np.exp(ordered - largest).cumsum(dtype=np.float64)
    return float(ordered[min(int(np.searchsorted(mass, top_p * total)), len(ordered) - 1)])
