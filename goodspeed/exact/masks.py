"""Masks of rows of logits: ids that a row may not draw, and those that a grammar allows it.

A grammar's bits are unpacked on the CPU, for the rows that have one only. Knows nothing about where either comes from.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def hide(logits: Tensor, banned: Sequence[Sequence[int]], allowed: Tensor | None = None) -> None:
    """Sets contiguous logits [num_rows, vocab] to -inf, in place, where a row may not draw.

    banned: ids of each row; those beyond the vocabulary ban nothing. allowed [num_rows, num_words] int32, on the CPU:
    bit t % 32 of word t // 32 says whether token t may be drawn; tokens beyond its words may not. Where a row has both,
    and all that it is allowed is banned, the ban does not hold.
    """
    words = None if allowed is None else allowed.numpy().view(np.uint32)
    limited: NDArray[np.bool_] = np.zeros(len(banned), bool) if words is None else ~_is_full(words)
    vocab = logits.shape[-1]
    cells = [
        row * vocab + token
        for row, tokens in enumerate(banned)
        if not limited[row]
        for token in tokens
        if token < vocab
    ]
    if cells:
        logits.view(-1).index_fill_(0, torch.tensor(cells).to(logits.device, non_blocking=True), -torch.inf)
    if words is not None:
        for rows in runs(limited.tolist()):
            left = words[rows]
            if any(banned[rows]):
                left = np.stack([_left(words[row], banned[row]) for row in range(rows.start, rows.stop)])
            _hide_others(logits[rows], left)


def limiting(allowed: Tensor | None) -> Tensor | None:
    """What rows are allowed, or None where no row has a token that it is not allowed."""
    return allowed if allowed is not None and not _is_full(allowed.numpy().view(np.uint32)).all() else None


def runs(chosen: Sequence[bool]) -> list[slice]:
    """Returns the rows that are chosen as runs of neighbours, so that each is a view of the logits."""
    edges = np.flatnonzero(np.diff(np.array([False, *chosen, False]).astype(np.int8))).tolist()
    return [slice(start, stop) for start, stop in zip(edges[::2], edges[1::2], strict=True)]


def _is_full(words: NDArray[np.uint32]) -> NDArray[np.bool_]:
    full: NDArray[np.bool_] = (words == 0xFFFFFFFF).all(1)
    return full


def _left(words: NDArray[np.uint32], banned: Sequence[int]) -> NDArray[np.uint32]:
    """What is allowed and not banned [num_words]; all that is allowed where nothing is left of it."""
    if not banned:
        return words
    left = words.copy()
    for token in banned:
        if token < 32 * len(words):
            left[token // 32] &= ~np.uint32(1 << token % 32)
    return left if left.any() else words


def _hide_others(logits: Tensor, words: NDArray[np.uint32]) -> None:
    """Hides in place all tokens whose bit in words [num_rows, num_words] is 0, or that have none."""
    vocab = logits.shape[-1]
    bits = np.unpackbits((~words).astype("<u4").view(np.uint8), axis=1, count=vocab, bitorder="little")
    bits[:, 32 * words.shape[1] :] = 1
    hidden = torch.from_numpy(bits).to(logits.device, non_blocking=True).view(torch.bool)
    logits.masked_fill_(hidden, -torch.inf)
