"""Draft distributions for the ratio rule: rounded, sampled from, and sent.

Exactness requires that the distribution sent is the one sampled from. So `make` first rounds the probabilities to a
proposal, the source of both tokens and bytes:

    proposal = make(draft_probs, "lattice")       one row per drafting session
    tokens = proposal.sample(noise)               drawn from the rounded values
    positions = proposal.pack()                   one `bytes` per row; a session collects its own over the steps
    Draft(proposal=b"".join(positions), ...)      sent to the verify node
    draft_probs = decode(data, num_positions, vocab_size)   the rounded values, normalized

The byte layout is in `proposal_bytes.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from goodspeed.errors import ConfigError, InvalidProposal
from goodspeed.exact.proposal_bytes import HEADER, LAYOUTS, MAX_K, Layout, spans
from goodspeed.exact.sampling import draw

KINDS = ("dense-fp32", "dense-fp16", "lattice")
TOLERANCE = 0.02
"""Largest deviation of the sum of dense probabilities from 1. Rounding 151,936 of them to fp16 can cost 0.5 %."""

_TOP_WEIGHT = 65535


@dataclass(frozen=True)
class Dense:
    """Every probability of the vocabulary, rounded to fp32 or fp16."""

    values: Tensor  # [batch, vocab] fp32 or fp16

    def sample(self, noise: Tensor) -> Tensor:
        """Draws tokens [batch] at noise [batch], uniform in [0, 1)."""
        return draw(self.values, noise)

    def pack(self) -> list[bytes]:
        """Returns each row as one position; joined, a draft's are its `Draft.proposal`. Waits for the device."""
        kind = 2 if self.values.dtype == torch.float16 else 1
        rows = self.values.cpu().numpy().astype(LAYOUTS[kind].values)
        return [HEADER.pack(kind, len(row)) + row.tobytes() for row in rows]


@dataclass(frozen=True)
class Lattice:
    """The k most likely tokens with 16-bit integer weights; the largest weight is 65,535."""

    ids: Tensor  # [batch, k] int64, increasing
    weights: Tensor  # [batch, k] int64 in 0..65535
    vocab_size: int

    def sample(self, noise: Tensor) -> Tensor:
        return self.ids.gather(1, draw(self.weights, noise).unsqueeze(1)).squeeze(1)

    def pack(self) -> list[bytes]:
        kind = 3 if self.vocab_size <= 1 << 16 else 4
        layout = LAYOUTS[kind]
        positions = []
        for ids, weights in zip(self.ids.cpu().numpy(), self.weights.cpu().numpy(), strict=True):
            kept = weights > 0
            entries = ids[kept].astype(layout.ids).tobytes() + weights[kept].astype(layout.values).tobytes()
            positions.append(HEADER.pack(kind, int(kept.sum())) + entries)
        return positions


def make(probs: Tensor, kind: str = "lattice", *, k: int = 64) -> Dense | Lattice:
    """Rounds probs [batch, vocab] to a proposal. kind: one of KINDS. k: tokens of a lattice, 1..256.

    Raises ConfigError for an unknown kind or a k out of range.
    """
    if kind == "dense-fp32":
        return Dense(probs.float())
    if kind == "dense-fp16":
        return Dense(probs.half())
    if kind != "lattice":
        raise ConfigError(f"no kind of proposal is named {kind!r}; choose one of {', '.join(KINDS)}")
    if not 1 <= k <= MAX_K:
        raise ConfigError(f"a lattice cannot have {k} tokens; choose 1 to {MAX_K}")
    top = probs.topk(min(k, probs.shape[1]))  # [batch, k], descending
    weights = (top.values / top.values[:, :1] * _TOP_WEIGHT).round().long()
    ids, order = top.indices.sort(1)
    return Lattice(ids, weights.gather(1, order), probs.shape[1])


def position_bytes(kind: str, vocab_size: int, k: int = 64) -> int:
    """Returns the largest size of one position in bytes, for the limit on message sizes."""
    code = {"dense-fp32": 1, "dense-fp16": 2, "lattice": 3 if vocab_size <= 1 << 16 else 4}[kind]
    return HEADER.size + LAYOUTS[code].entry_bytes * (min(k, vocab_size) if kind == "lattice" else vocab_size)


def decode(data: bytes, num_positions: int, vocab_size: int, tokens: Sequence[int] | None = None) -> Tensor:
    """Returns draft probabilities [num_positions, vocab_size], fp32; rows are normalized in float64.

    tokens [num_positions]: each must have a positive probability at its position; None: no check. Sizes are checked
    before memory is allocated; the caller bounds num_positions. Raises InvalidProposal with position and reason.
    """
    found = spans(data, num_positions, vocab_size)
    probs = np.zeros((num_positions, vocab_size), np.float32)
    for position, (kind, start, num_entries) in enumerate(found):
        try:
            ids, values = _entries(data, LAYOUTS[kind], start, num_entries, vocab_size)
        except InvalidProposal as error:
            raise InvalidProposal(f"position {position} of the proposal: {error}") from None
        probs[position, ids] = values / values.sum()
    if tokens is not None:
        _check_tokens(probs, tokens)
    return torch.from_numpy(probs)


def _entries(
    data: bytes, layout: Layout, start: int, num_entries: int, vocab_size: int
) -> tuple[slice | NDArray[np.int64], NDArray[np.float64]]:
    if layout.ids is None:
        return slice(num_entries), _dense_values(np.frombuffer(data, layout.values, num_entries, start))
    ids = np.frombuffer(data, layout.ids, num_entries, start).astype(np.int64)
    weights = np.frombuffer(data, layout.values, num_entries, start + num_entries * np.dtype(layout.ids).itemsize)
    if (np.diff(ids) <= 0).any():
        raise InvalidProposal("token ids that are not strictly increasing")
    if ids[-1] >= vocab_size:
        raise InvalidProposal(f"token id {ids[-1]} outside the vocabulary of {vocab_size}")
    if not weights.all():
        raise InvalidProposal("a weight of zero; leave the token out")
    return ids, weights.astype(np.float64)


def _dense_values(sent: NDArray[Any]) -> NDArray[np.float64]:
    values: NDArray[np.float64] = torch.from_numpy(sent.copy()).double().numpy()  # 30 times faster for fp16
    if not np.isfinite(values).all():
        raise InvalidProposal("a probability that is not a finite number")
    if (values < 0).any():
        raise InvalidProposal("a negative probability")
    total = float(values.sum())
    if abs(total - 1) > TOLERANCE:
        raise InvalidProposal(f"probabilities that sum to {total:.4f}, not 1")
    return values


def _check_tokens(probs: NDArray[np.float32], tokens: Sequence[int]) -> None:
    for position, token in enumerate(tokens):
        if not 0 <= token < probs.shape[1]:
            raise InvalidProposal(f"token id {token} outside the vocabulary of {probs.shape[1]}")
        if not probs[position, token] > 0:
            raise InvalidProposal(f"position {position} of the proposal: token {token} has probability zero")
