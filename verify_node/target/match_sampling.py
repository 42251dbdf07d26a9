"""Which rows of a round's logits its sessions draw from, and what the match rule decides on them.

Used by `target.py`, and by the benchmark of a GPU, so that it times the same code. Needs torch and numpy only; knows
nothing about rounds, messages or key/value memory.
"""

from collections.abc import Sequence
from math import isfinite
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from goodspeed.exact.rejection import match
from goodspeed.exact.sampling import Sampling, SamplingBatch, choose
from goodspeed.exact.truncation import without


class Drawing(Protocol):
    """A session that draws in this round, at its base and after each of its drafted tokens."""

    @property
    def first_row(self) -> int:
        """The row of the logits that decides the token at `base_len`; the others follow it."""
        ...

    @property
    def base_len(self) -> int: ...
    @property
    def drafted(self) -> Sequence[int]: ...
    @property
    def sampling(self) -> Sampling: ...
    @property
    def may_ban(self) -> bool:
        """Whether `banned_at` gives anything at all, at some position of this round."""
        ...

    def banned_at(self, position: int) -> tuple[int, ...]:
        """What may not be drawn at this position of the text."""
        ...


class Decided(NamedTuple):
    """What the match rule decided of one session."""

    target_tokens: list[int]  # the target's own draws, one more than there are drafted tokens
    num_accepted: int
    agreement: int  # drafted tokens that the target drew too
    is_finite: bool  # whether the largest logit of every row is a number

    @property
    def next_token(self) -> int:
        return self.target_tokens[self.num_accepted]


def decide_match(drawings: Sequence[Drawing], logits: Tensor, num_tokens: int) -> list[Decided]:
    """The target's own draw at every position, then equality, which is no work for tensors.

    logits [num_rows, vocab], of which the first num_tokens columns can be drawn; one transfer from their device.
    """
    rows, positions, counts = rows_of(drawings)
    batch = SamplingBatch.of([drawing.sampling for drawing in drawings], counts, device=logits.device)
    wanted = logits if len(rows) == len(logits) else logits[integers(rows, logits)]
    allowed = without_banned(drawings, wanted)
    drawn = choose(allowed, batch, integers(positions, logits), num_tokens=num_tokens)  # [num_rows]
    tokens, tops = torch.stack([drawn.double(), largest(wanted, allowed)]).tolist()  # ids are exact in fp64
    decided: list[Decided] = []
    first = 0
    for drawing, count in zip(drawings, counts, strict=True):
        target_tokens = [int(token) for token in tokens[first : first + count]]
        num_accepted, agreement = match(target_tokens, drawing.drafted)
        is_finite = all(map(isfinite, tops[first : first + count]))
        decided.append(Decided(target_tokens, num_accepted, agreement, is_finite))
        first += count
    return decided


def rows_of(drawings: Sequence[Drawing]) -> tuple[list[int], list[int], list[int]]:
    """Rows of logits that are looked at, the text position that each decides, and how many each session has."""
    rows: list[int] = []
    positions: list[int] = []
    counts: list[int] = []
    for drawing in drawings:
        count = len(drawing.drafted) + 1
        rows += range(drawing.first_row, drawing.first_row + count)
        positions += range(drawing.base_len, drawing.base_len + count)
        counts.append(count)
    return rows, positions, counts


def without_banned(drawings: Sequence[Drawing], wanted: Tensor) -> Tensor:
    """Logits [num_rows, vocab] without what may not be drawn yet; the very same where nobody has such."""
    if not any(drawing.may_ban for drawing in drawings):
        return wanted
    return without(
        wanted,
        [
            drawing.banned_at(drawing.base_len + offset)
            for drawing in drawings
            for offset in range(len(drawing.drafted) + 1)
        ],
    )


def largest(wanted: Tensor, allowed: Tensor) -> Tensor:
    """Largest logit of each row [num_rows], fp64; not finite if a logit overflowed or every token is banned."""
    tops = wanted.amax(-1).double()
    return tops if allowed is wanted else tops + allowed.amax(-1)


def integers(values: Sequence[int] | Sequence[Sequence[int]], like: Tensor) -> Tensor:
    """Tensor of int64, on the device of `like`, without waiting for it."""
    return torch.from_numpy(np.array(values, np.int64)).to(like.device, non_blocking=True)
