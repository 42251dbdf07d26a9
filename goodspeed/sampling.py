"""From logits to probabilities to tokens.

Knows nothing about models, sessions, drafts or rounds. The match rule draws with `sample`: whatever batch, padding or
device a token is drawn in, it is drawn again exactly. The ratio rule draws with `draw` at one `uniform` number.

Nothing here waits for the device: what a batch needs is decided from the `Sampling` of its rows on the host.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor

from .noise import Role, exponential, key, uniform

__all__ = ["Role", "Sampling", "SamplingBatch", "choose", "draw", "sample", "to_probs", "uniform"]

Device: TypeAlias = torch.device | str


class Sampling(Protocol):
    """How the token of a row is chosen; the wire's `messages.Sampling` is one, which this file need not know."""

    @property
    def temperature(self) -> float: ...

    @property
    def top_k(self) -> int: ...

    @property
    def top_p(self) -> float: ...

    @property
    def seed(self) -> int: ...


@dataclass(frozen=True)
class SamplingBatch:
    """The `Sampling` of every row of a batch, with its tensors made on demand."""

    rows: tuple[Sampling, ...]
    device: Device = "cpu"

    @classmethod
    def of(
        cls, samplings: Sequence[Sampling], repeats: Sequence[int] | None = None, device: Device = "cpu"
    ) -> "SamplingBatch":
        """One row per sampling, or repeats[i] rows for samplings[i]."""
        if repeats is None:
            return cls(tuple(samplings), device)
        return cls(tuple(s for s, n in zip(samplings, repeats, strict=True) for s in repeat(s, n)), device)

    def __getitem__(self, rows: slice) -> "SamplingBatch":
        return SamplingBatch(self.rows[rows], self.device)

    @cached_property
    def greedy(self) -> tuple[int, ...]:
        return tuple(i for i, row in enumerate(self.rows) if row.temperature == 0)

    @property
    def all_greedy(self) -> bool:
        return len(self.greedy) == len(self.rows)

    @cached_property
    def seeds(self) -> Tensor:  # [batch] int64
        return self.tensor([row.seed for row in self.rows], torch.int64)

    def tensor(self, values: Sequence[float], dtype: torch.dtype) -> Tensor:
        """On the device, without waiting for it."""
        return torch.tensor(values, dtype=dtype).to(self.device, non_blocking=True)


def to_probs(logits: Tensor, sampling: SamplingBatch, *, num_tokens: int | None = None) -> Tensor:
    """Probabilities [batch, vocab] (fp32; fp64 for fp64 logits) of logits [batch, vocab]: temperature, top-k, top-p.

    Temperature 0 is one-hot on the largest logit, the lowest id among equals. Top-p keeps the fewest of the top-k
    tokens (scaled to 1) that reach it. What is exactly as likely as the last token kept is kept too, so that the order
    in which a device sorts equals does not matter. Columns from `num_tokens` on are padding of the model beyond its
    tokenizer: they are cut off.
    """
    logits = logits[:, :num_tokens].to(torch.promote_types(logits.dtype, torch.float32))
    if sampling.all_greedy:
        return _one_hot(logits)
    probs = _truncate(_temper(logits, sampling), sampling).softmax(-1)  # [batch, vocab]
    if sampling.greedy:
        index = sampling.tensor(sampling.greedy, torch.int64)
        probs.index_copy_(0, index, _one_hot(logits[index]))
    return probs


def sample(probs: Tensor, seeds: Tensor, positions: Tensor, *, greedy: bool = False) -> Tensor:
    """The match rule's draw: tokens [batch] from probs [batch, vocab], seeds and positions [batch] int64.

    argmax(log p + Gumbel(seed, position, token id)), computed as the largest p / Exp. A token of probability zero is
    never drawn; a one-hot row gives its token whatever the noise. `greedy` says that all rows are one-hot.
    """
    if greedy:
        return probs.argmax(-1)
    keys = key(Role.MATCH, seeds, positions)
    step = _rows_at_once(probs)
    if len(probs) <= step:
        return _argmax(probs / exponential(keys, probs.shape[-1]))
    tokens = [
        _argmax(rows / exponential(part, rows.shape[-1]))
        for rows, part in zip(torch.split(probs, step), torch.split(keys, step), strict=True)
    ]
    return torch.cat(tokens)


def choose(logits: Tensor, sampling: SamplingBatch, positions: Tensor, *, num_tokens: int | None = None) -> Tensor:
    """`sample(to_probs(logits))` [batch], a few rows at a time: no second copy of thousands of wide rows."""
    if sampling.all_greedy:
        return logits[:, :num_tokens].argmax(-1)
    step = _rows_at_once(logits)
    if len(logits) <= step:
        return sample(to_probs(logits, sampling, num_tokens=num_tokens), sampling.seeds, positions)
    chunks = [slice(start, start + step) for start in range(0, len(logits), step)]
    tokens = [
        sample(to_probs(logits[rows], part, num_tokens=num_tokens), part.seeds, positions[rows], greedy=part.all_greedy)
        for rows, part in ((rows, sampling[rows]) for rows in chunks)
    ]
    return torch.cat(tokens)


def draw(weights: Tensor, noise: Tensor) -> Tensor:
    """Tokens [...] in proportion to weights [..., vocab], by inverse CDF at noise [...] in [0, 1).

    Weights need not sum to 1. A weight of zero is never drawn, however the sums are rounded.
    """
    sums = weights.cumsum(-1, dtype=torch.float64).masked_fill(weights <= 0, -1.0)  # [..., vocab]
    total = sums.amax(-1, keepdim=True)
    below_total = torch.nextafter(total, torch.zeros_like(total))
    level = torch.minimum(noise.double().unsqueeze(-1) * total, below_total)
    return (sums > level).to(torch.uint8).argmax(-1)  # argmax gives the first of equals


def _argmax(rows: Tensor) -> Tensor:
    """[batch] of rows [batch, vocab] in fp32 or fp64: the first of the largest."""
    if rows.device.type != "cpu":
        return rows.argmax(-1)
    return torch.from_numpy(rows.numpy().argmax(-1))  # ten times faster than torch's on a CPU


def _one_hot(logits: Tensor) -> Tensor:
    return torch.zeros_like(logits).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)


def _temper(logits: Tensor, sampling: SamplingBatch) -> Tensor:
    if all(row.temperature in (0.0, 1.0) for row in sampling.rows):
        return logits
    inverse = [1 / max(row.temperature, 1e-30) if row.temperature else 1.0 for row in sampling.rows]
    return logits * sampling.tensor(inverse, logits.dtype).unsqueeze(-1)


def _truncate(logits: Tensor, sampling: SamplingBatch) -> Tensor:
    """-inf for what top-k and top-p drop. Only rows without top-k are sorted whole."""
    rows = [i for i, row in enumerate(sampling.rows) if row.temperature > 0 and (row.top_k or row.top_p < 1)]
    limited = {i: 0 < sampling.rows[i].top_k < logits.shape[-1] for i in rows}
    top_k = [i for i in rows if limited[i]]
    top_p = [i for i in rows if not limited[i] and sampling.rows[i].top_p < 1]
    for group in (top_k, top_p):
        if group:
            logits = _truncate_rows(logits, sampling, group)
    return logits


def _truncate_rows(logits: Tensor, sampling: SamplingBatch, rows: list[int]) -> Tensor:
    vocab = logits.shape[-1]
    counts = [min(sampling.rows[i].top_k or vocab, vocab) for i in rows]
    index = sampling.tensor(rows, torch.int64)
    last = sampling.tensor(counts, torch.int64).unsqueeze(-1) - 1  # [rows, 1]
    top_p = sampling.tensor([sampling.rows[i].top_p for i in rows], torch.float64).unsqueeze(-1)
    chosen = logits[index]  # [rows, vocab]
    ordered = _largest(chosen, max(counts))  # [rows, max top_k]
    beyond = torch.arange(ordered.shape[-1], device=logits.device) > last
    mass = ordered.masked_fill(beyond, -torch.inf).softmax(-1).cumsum(-1, dtype=torch.float64)
    reached = (mass < top_p).sum(-1, keepdim=True)
    least = ordered.gather(-1, torch.where(top_p < 1, torch.minimum(reached, last), last))  # [rows, 1]
    return logits.index_copy(0, index, chosen.masked_fill(chosen < least, -torch.inf))


def _largest(values: Tensor, count: int) -> Tensor:
    """The largest [rows, count] of values [rows, vocab] in falling order."""
    if values.device.type != "cpu":
        return values.topk(count).values
    array = values.numpy()  # numpy sorts rows 30 times faster than torch on a CPU, and selects 10 times faster
    rest = array.shape[-1] - count
    if rest > 0:
        array = np.partition(array, rest, axis=-1)[:, rest:]
    return torch.from_numpy(np.sort(array, axis=-1)[:, ::-1].copy())


def _rows_at_once(wide: Tensor) -> int:
    """Rows whose temporaries stay in the cache of a CPU, or below a few hundred MB on a GPU."""
    num_elements = 1 << (18 if wide.device.type == "cpu" else 25)
    return max(1, num_elements // wide.shape[-1])
