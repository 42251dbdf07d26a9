"""Sampling: logits to probabilities to tokens.

The match rule draws with `sample`: the result is the same in any batch, with any padding, on any device. The ratio rule
draws with `draw` at one `uniform` number.

No function waits for the device: all decisions follow from the rows' `Sampling` on the host.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from goodspeed.exact.logits.masks import truncate
from goodspeed.exact.logits.truncation import Kept
from goodspeed.exact.logits.truncation import Sampling as Sampling
from goodspeed.exact.noise import Role as Role
from goodspeed.exact.noise import exponential_at, key, match_noise
from goodspeed.exact.noise import uniform as uniform

Device: TypeAlias = torch.device | str
_NUMPY = {torch.int64: np.int64, torch.float32: np.float32, torch.float64: np.float64}


@dataclass(frozen=True)
class SamplingBatch:
    """The `Sampling` of every row of a batch, with tensors made on demand."""

    rows: tuple[Sampling, ...]
    device: Device = "cpu"

    @classmethod
    def of(
        cls, samplings: Sequence[Sampling], repeats: Sequence[int] | None = None, device: Device = "cpu"
    ) -> "SamplingBatch":
        """Returns a batch with one row per sampling, or with repeats[i] rows for samplings[i]."""
        if repeats is None:
            return cls(tuple(samplings), device)
        return cls(tuple(s for s, n in zip(samplings, repeats, strict=True) for s in repeat(s, n)), device)

    def __getitem__(self, rows: slice) -> "SamplingBatch":
        return SamplingBatch(self.rows[rows], self.device)

    def pick(self, rows: Sequence[int]) -> "SamplingBatch":
        return SamplingBatch(tuple(self.rows[row] for row in rows), self.device)

    @cached_property
    def greedy(self) -> tuple[int, ...]:
        return tuple(i for i, row in enumerate(self.rows) if row.temperature == 0)

    def truncated(self, vocab: int) -> list[int]:
        """Returns the rows that top-k or top-p truncates."""
        return [
            i for i, row in enumerate(self.rows) if row.temperature > 0 and (0 < row.top_k < vocab or row.top_p < 1)
        ]

    @property
    def all_greedy(self) -> bool:
        return len(self.greedy) == len(self.rows)

    @cached_property
    def seeds(self) -> Tensor:  # [batch] int64
        return self.tensor([row.seed for row in self.rows], torch.int64)

    def tensor(self, values: Sequence[float], dtype: torch.dtype) -> Tensor:
        """Returns a tensor on the device, without waiting for it."""
        tensor = torch.from_numpy(np.array(values, _NUMPY[dtype]))  # half the time of torch.tensor
        return tensor.to(self.device, non_blocking=True)


def to_probs(logits: Tensor, sampling: SamplingBatch, *, num_tokens: int | None = None) -> Tensor:
    """Returns probabilities [batch, vocab] (fp32; fp64 for fp64) of logits [batch, vocab]: temperature, top-k, top-p.

    Temperature 0 is one-hot on the largest logit, the lowest id among equals. Top-p retains the fewest of the top-k
    tokens whose probabilities (scaled to 1) sum to at least top_p. It also retains tokens exactly as likely as the
    least likely of these, so that a device's sort order of equals does not matter. num_tokens: columns from here on are
    the model's padding, and are dropped.
    """
    logits = _wide(logits[:, :num_tokens])
    if sampling.all_greedy:
        return _one_hot(logits)
    probs = _probs(_temper(logits, sampling), sampling)
    if sampling.greedy:
        index = sampling.tensor(sampling.greedy, torch.int64)
        probs.index_copy_(0, index, _one_hot(logits[index]))
    return probs


def sample(probs: Tensor, seeds: Tensor, positions: Tensor, *, greedy: bool = False) -> Tensor:
    """Draws tokens [batch] by the match rule from probs [batch, vocab], seeds and positions [batch] int64.

    argmax(log p + Gumbel(seed, position, token id)), computed as the largest p / Exp. A token of probability zero is
    never drawn; a one-hot row yields its token for any noise. greedy: all rows are one-hot.
    """
    if greedy:
        return _argmax(probs)
    step, vocab = rows_at_once(probs), probs.shape[-1]
    parts = zip(*(torch.split(each, step) for each in (probs, seeds, positions)), strict=True)
    return torch.cat([_argmax(_arrivals(rows, match_noise(seed, at, vocab))) for rows, seed, at in parts])


def choose(logits: Tensor, sampling: SamplingBatch, positions: Tensor, *, num_tokens: int | None = None) -> Tensor:
    """Returns `sample(to_probs(logits))` [batch], computed a few rows at a time to bound its memory."""
    logits = logits[:, :num_tokens]
    if sampling.all_greedy:
        return _argmax(logits)
    step = rows_at_once(logits)
    if len(logits) <= step:
        return _choose(logits, sampling, positions)
    chunks = [slice(start, start + step) for start in range(0, len(logits), step)]
    return torch.cat([_choose(logits[rows], sampling[rows], positions[rows]) for rows in chunks])


def choose_scored(logits: Tensor, probs: Tensor, sampling: SamplingBatch, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Returns tokens [batch] by `choose`, all rows at once, and the scores [batch, vocab] that `runners_up` orders.

    probs: softmax of the logits, both in fp32 or fp64.
    """
    scores = _scores(logits, sampling, positions, probs)
    if sampling.truncated(logits.shape[-1]):
        return choose(logits, sampling, positions), scores
    return _argmax(scores), scores


def _scores(logits: Tensor, sampling: SamplingBatch, positions: Tensor, probs: Tensor | None = None) -> Tensor:
    """Returns p / Exp without top-k and top-p; the largest is the first arrival at rates p. greedy: returns the logits.

    probs: softmax of the logits; None: not known.
    """
    if sampling.all_greedy:
        return logits
    tempered = _temper(logits, sampling)
    if probs is None or tempered is not logits:
        probs = tempered.softmax(-1)
    scores = _arrivals(probs, match_noise(sampling.seeds, positions, probs.shape[-1]))
    if sampling.greedy:
        index = sampling.tensor(sampling.greedy, torch.int64)
        scores.index_copy_(0, index, logits[index])
    return scores


def _choose(logits: Tensor, sampling: SamplingBatch, positions: Tensor) -> Tensor:
    """Draws all rows at once. On a CPU, truncated rows are drawn separately, with noise for retained tokens only."""
    few = sampling.truncated(logits.shape[-1])
    if not few:
        return _argmax(_scores(_wide(logits), sampling, positions))
    if logits.device.type != "cpu":
        probs = to_probs(logits, sampling)
        return sample(probs, sampling.seeds, positions, greedy=sampling.all_greedy)
    if len(few) == len(logits):
        return _choose_kept(logits, sampling, positions)
    tokens = torch.empty(len(logits), dtype=torch.int64)
    rest = [row for row in range(len(logits)) if row not in set(few)]
    tokens[few] = _choose_kept(logits[few], sampling.pick(few), positions[few])
    tokens[rest] = _choose(logits[rest], sampling.pick(rest), positions[rest])
    return tokens


def _choose_kept(logits: Tensor, sampling: SamplingBatch, positions: Tensor) -> Tensor:
    kept = Kept.of(_temper(_wide(logits), sampling).numpy(), sampling.rows)
    keys = key(Role.MATCH, sampling.seeds, positions)[torch.from_numpy(kept.rows)]
    noise = exponential_at(keys, torch.from_numpy(kept.tokens)).numpy()
    return torch.from_numpy(kept.first(kept.probs / noise, len(logits)))


def runners_up(logits: Tensor, tokens: Tensor, scores: Tensor, number: int) -> Tensor:
    """Returns the next best tokens [batch, number] after tokens [batch], best first; -1: there is none.

    tokens, scores: by `choose_scored` of the logits. Without top-k and top-p: another model may retain other tokens.
    """
    others = scores.scatter(1, tokens.unsqueeze(1), float("-inf"))
    best = others.topk(min(number, others.shape[-1]))
    has_none = best.values.isneginf() | logits.gather(1, best.indices).isneginf()
    return best.indices.masked_fill(has_none, -1)


def draw(weights: Tensor, noise: Tensor) -> Tensor:
    """Draws tokens [...] in proportion to weights [..., vocab], by inverse CDF at noise [...] in [0, 1).

    Weights need not sum to 1. A weight of zero is never drawn, regardless of rounding.
    """
    sums = weights.cumsum(-1, dtype=torch.float64).masked_fill(weights <= 0, -1.0)  # [..., vocab]
    total = sums.amax(-1, keepdim=True)
    below_total = torch.nextafter(total, torch.zeros_like(total))
    level = torch.minimum(noise.double().unsqueeze(-1) * total, below_total)
    return (sums > level).to(torch.uint8).argmax(-1)  # argmax gives the first of equals


def _arrivals(probs: Tensor, noise: Tensor) -> Tensor:
    """Returns p / Exp [batch, vocab], whose largest is the first arrival at these rates. Overwrites the noise."""
    return torch.div(probs, noise, out=noise) if probs.dtype == noise.dtype else probs / noise


def _argmax(values: Tensor) -> Tensor:
    """Returns the first largest column [batch] of values [batch, vocab]; a NaN counts as the largest."""
    if values.device.type != "cpu" or values.dtype not in (torch.float32, torch.float64):
        return values.argmax(-1)
    return torch.from_numpy(values.numpy().argmax(-1))  # ten times faster than torch on a CPU


def _one_hot(logits: Tensor) -> Tensor:
    return torch.zeros_like(logits).scatter_(-1, _argmax(logits).unsqueeze(-1), 1.0)


def _wide(logits: Tensor) -> Tensor:
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def _temper(logits: Tensor, sampling: SamplingBatch) -> Tensor:
    if all(row.temperature in (0.0, 1.0) for row in sampling.rows):
        return logits
    inverse = [1 / max(row.temperature, 1e-30) if row.temperature else 1.0 for row in sampling.rows]
    return logits * sampling.tensor(inverse, logits.dtype).unsqueeze(-1)


def _probs(tempered: Tensor, sampling: SamplingBatch) -> Tensor:
    """Returns the probabilities of tempered logits [batch, vocab], with top-k and top-p."""
    few = sampling.truncated(tempered.shape[-1])
    if tempered.device.type != "cpu":
        return truncate(tempered, sampling.rows, few).softmax(-1)
    probs = tempered.softmax(-1)
    if not few:
        return probs
    kept = Kept.of(tempered[few].numpy(), sampling.pick(few).rows)
    probs[few] = 0.0
    probs[torch.tensor(few)[torch.from_numpy(kept.rows)], torch.from_numpy(kept.tokens)] = torch.from_numpy(kept.probs)
    return probs


def rows_at_once(wide: Tensor) -> int:
    """Returns the number of rows whose temporaries fit into a CPU's cache, or into a few hundred MB on a GPU."""
    num_elements = 1 << (18 if wide.device.type == "cpu" else 25)
    return max(1, num_elements // wide.shape[-1])
