"""The byte layout of a proposal's positions, and truncation of a proposal to its leading positions.

A position is `kind: u8, num_entries: u32` and then its entries, all little-endian. Dense: one float per token id, from
0 on. Lattice: the strictly increasing token ids, then one positive 16-bit weight per id.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from goodspeed.errors import InvalidProposal

MAX_K = 256
"""Most tokens in one position of a lattice."""

HEADER = struct.Struct("<BI")


class Layout(NamedTuple):
    ids: str | None  # numpy dtype; None: ids are not sent, they are 0, 1, ...
    values: str  # numpy dtype

    @property
    def entry_bytes(self) -> int:
        return np.dtype(self.values).itemsize + (np.dtype(self.ids).itemsize if self.ids else 0)


_CERTAIN = struct.Struct("<BIIH")  # HEADER, and a lattice's one id and weight

LAYOUTS = {1: Layout(None, "<f4"), 2: Layout(None, "<f2"), 3: Layout("<u2", "<u2"), 4: Layout("<u4", "<u2")}


def cut(data: bytes, num_positions: int) -> bytes:
    """Returns a proposal's leading positions. One that cannot be parsed is returned whole, for `decode` to refuse."""
    start = 0
    for _ in range(num_positions):
        if start + HEADER.size > len(data):
            return data
        kind, num_entries = HEADER.unpack_from(data, start)
        if kind not in LAYOUTS:
            return data
        start += HEADER.size + num_entries * LAYOUTS[kind].entry_bytes
    return data[:start]


def certain(tokens: Sequence[int]) -> bytes:
    """Returns a proposal with probability 1 for each of these tokens: lattices with one entry."""
    return b"".join(_CERTAIN.pack(4, 1, token, 1) for token in tokens)


def spans(data: bytes, num_positions: int, vocab_size: int) -> list[tuple[int, int, int]]:
    """Returns (kind, byte offset of the entries, number of entries) per position; InvalidProposal for wrong sizes."""
    found: list[tuple[int, int, int]] = []
    start = 0
    for position in range(num_positions):
        if start + HEADER.size > len(data):
            raise InvalidProposal(f"the proposal ends after {position} of {num_positions} positions")
        kind, num_entries = HEADER.unpack_from(data, start)
        start += HEADER.size
        if kind not in LAYOUTS:
            raise InvalidProposal(f"position {position} of the proposal: unknown kind {kind}")
        most = min(MAX_K, vocab_size) if LAYOUTS[kind].ids else vocab_size
        if not 1 <= num_entries <= most:
            raise InvalidProposal(f"position {position} of the proposal: {num_entries} entries, not 1 to {most}")
        found.append((kind, start, num_entries))
        start += num_entries * LAYOUTS[kind].entry_bytes
    if start != len(data):
        raise InvalidProposal(f"the proposal has {len(data)} bytes, but its {num_positions} positions take {start}")
    return found
