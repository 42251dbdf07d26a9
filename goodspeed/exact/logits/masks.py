"""Masks for rows of logits: ids that a row must not draw, ids that its grammar allows, and top-k and top-p.

A grammar's bits are expanded to 0 or -inf, and added to the logits. On a CPU this takes a quarter of the time of
`masked_fill` with a boolean mask.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from goodspeed.exact.logits.truncation import Sampling

Words: TypeAlias = NDArray[np.int32]
"""Bit masks of allowed tokens [num_rows, num_words]: bit t % 32 of word t // 32 is 1 if token t may be drawn."""

BIASES: NDArray[np.float32] = np.where(
    np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little") == 1, 0.0, -np.inf
).astype(np.float32)
"""Summands for the logits of eight tokens [256, 8], indexed by the byte that holds their bits."""


class Limits(NamedTuple):
    """Tokens that `num_rows` consecutive rows of logits may or must not draw."""

    num_rows: int
    banned: Sequence[Sequence[int]] | None = None  # ids per row; ids beyond the vocabulary are ignored
    allowed: Words | None = None  # bits per row; tokens beyond the bits are not allowed


def hide(logits: Tensor, limits: Sequence[Limits]) -> None:
    """Sets contiguous logits [num_rows, vocab] to -inf, in place, at tokens that a row must not draw.

    If all tokens that a row's bits allow are banned, the ban is ignored. A logit of inf or NaN that bits hide becomes
    NaN.
    """
    cells: list[int] = []
    first, vocab = 0, logits.shape[-1]
    for has_bits, some in groupby(limits, lambda one: one.allowed is not None):
        neighbours = list(some)
        banned = [ids for one in neighbours for ids in one.banned or [()] * one.num_rows]
        if has_bits:
            words = np.concatenate([one.allowed for one in neighbours if one.allowed is not None])
            _hide_others(logits[first : first + len(banned)], _without_banned(words.view(np.uint32), banned))
        else:
            cells += [row * vocab + token for row, ids in enumerate(banned, first) for token in ids if token < vocab]
        first += len(banned)
    if cells:
        logits.view(-1).index_fill_(0, torch.tensor(cells).to(logits.device, non_blocking=True), -torch.inf)


def runs(chosen: Sequence[bool]) -> list[slice]:
    """Returns the chosen rows as slices of consecutive rows, so that each slice is a view of the logits."""
    if all(chosen):
        return [slice(0, len(chosen))] if chosen else []
    edges = np.flatnonzero(np.diff(np.array([False, *chosen, False]).astype(np.int8))).tolist()
    return [slice(start, stop) for start, stop in zip(edges[::2], edges[1::2], strict=True)]


def _without_banned(words: NDArray[np.uint32], banned: Sequence[Sequence[int]]) -> NDArray[np.uint32]:
    """Clears banned bits in words [num_rows, num_words], except in rows where no bit would remain."""
    for row, ids in enumerate(banned):
        if not ids:
            continue
        left = words[row].copy()
        for token in ids:
            if token < 32 * len(left):
                left[token // 32] &= ~np.uint32(1 << token % 32)
        if left.any():
            words[row] = left
    return words


def _hide_others(logits: Tensor, words: NDArray[np.uint32]) -> None:
    """Hides, in place, tokens whose bit in words [num_rows, num_words] is 0 or missing."""
    num_bits = 32 * words.shape[1]
    octets = words.astype("<u4", copy=False).view(np.uint8)
    expand = _expanded_by_numpy if logits.device.type == "cpu" else _expanded_by_torch
    logits[:, :num_bits] += expand(octets, logits)[:, : logits.shape[-1]]
    logits[:, num_bits:] = -torch.inf


def _expanded_by_numpy(octets: NDArray[np.uint8], like: Tensor) -> Tensor:
    """Expands octets [num_rows, num_octets] to summands of logits [num_rows, 8 * num_octets]."""
    return torch.from_numpy(BIASES.take(octets.reshape(-1), axis=0).reshape(len(octets), -1)).to(like.dtype)


def _expanded_by_torch(octets: NDArray[np.uint8], like: Tensor) -> Tensor:
    """Expands octets as `_expanded_by_numpy` does, on the device of the logits: only the bits are copied there."""
    biases = torch.from_numpy(BIASES).to(like.device, like.dtype, non_blocking=True)
    index = torch.from_numpy(octets).to(like.device, non_blocking=True).to(torch.int32)
    return biases.index_select(0, index.view(-1)).view(len(octets), -1)


def truncate(logits: Tensor, samplings: Sequence[Sampling], rows: Sequence[int]) -> Tensor:
    """Returns logits [batch, vocab] where tokens of `rows` that top-k or top-p drops are -inf.

    Masks whole rows, because on an asynchronous device the number of retained tokens is not known without waiting for
    the device; on a CPU, `Kept` lists the same tokens. Only rows without top-k are sorted fully.
    """
    vocab = logits.shape[-1]
    top_k = [i for i in rows if 0 < samplings[i].top_k < vocab]
    top_p = [i for i in rows if not 0 < samplings[i].top_k < vocab]
    for group in (top_k, top_p):
        if group:
            logits = _truncate(logits, [samplings[i] for i in group], group)
    return logits


def _truncate(logits: Tensor, samplings: Sequence[Sampling], rows: list[int]) -> Tensor:
    def tensor(values: Sequence[float], dtype: torch.dtype) -> Tensor:
        return torch.tensor(values, dtype=dtype).to(logits.device, non_blocking=True)

    vocab = logits.shape[-1]
    counts = [min(sampling.top_k or vocab, vocab) for sampling in samplings]
    index = tensor(rows, torch.int64)
    last = tensor(counts, torch.int64).unsqueeze(-1) - 1  # [rows, 1]
    top_p = tensor([sampling.top_p for sampling in samplings], torch.float64).unsqueeze(-1)
    chosen = logits[index]  # [rows, vocab]
    ordered = chosen.topk(max(counts)).values  # [rows, most], descending
    beyond = torch.arange(ordered.shape[-1], device=logits.device) > last
    mass = ordered.masked_fill(beyond, -torch.inf).softmax(-1).cumsum(-1, dtype=torch.float64)
    reached = (mass < top_p).sum(-1, keepdim=True)
    least = ordered.gather(-1, torch.where(top_p < 1, torch.minimum(reached, last), last))  # [rows, 1]
    return logits.index_copy(0, index, chosen.masked_fill(chosen < least, -torch.inf))
