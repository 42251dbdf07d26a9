"""Computes forward passes already laid out: plain integers in, logits out, keys and values added to the KV cache.

One process lays out a pass, and every rank of a split model can compute it.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from torch import Tensor, nn

from goodspeed.engine.torch.attention.cuda_graphs import Grid, Kernel
from goodspeed.engine.torch.attention.gathered import Batch
from goodspeed.engine.torch.attention.layout import GroupLimits, Layout, lay_out
from goodspeed.engine.torch.attention.trees import Ints, Tree
from goodspeed.engine.torch.kv_cache import KVPool, sent

GROUP_BYTES = {"cpu": 4 << 20, "cuda": 1 << 29}  # a group's gathered rows should fit into a CPU's cache
MAX_PADDING = {"cpu": 1 << 10, "cuda": 1 << 18}  # a launch costs a GPU more than a little padding


@dataclass(frozen=True)
class Pass:
    """All inputs of a forward pass; chunk i appends counts[i] tokens to starts[i] cached ones."""

    tokens: Ints  # [num_tokens]
    wanted: Sequence[int]  # [num_wanted] packed positions to return logits for
    starts: Sequence[int]  # [num_chunks]
    counts: Sequence[int]  # [num_chunks]
    tables: Sequence[Ints]  # [num_chunks] pages of each session, new ones included
    parents: Mapping[int, Sequence[int]] = field(default_factory=dict)  # by chunk: its tree's parents (`Chunk`)


@dataclass(frozen=True)
class Copy:
    """Key and value rows to copy within the KV cache, all at once."""

    source: Ints  # [num_rows] slots
    target: Ints  # [num_rows] slots


@dataclass(frozen=True)
class Memory:
    """The size of the KV cache."""

    num_pages: int
    page_size: int


Order = Pass | Copy | Memory


class Others(Protocol):
    """Interface of the other ranks of a split model: they compute each order in parallel with this process."""

    num_ranks: int  # including this process

    def told(self, order: Order) -> AbstractContextManager[None]:
        """Sends the order to the other ranks; this process computes it inside the block."""
        ...


class Passes:
    """A model with its KV cache; runs one pass after the other."""

    def __init__(
        self, model: nn.Module, memory: KVPool, others: Others | None = None, kernel: Kernel | None = None
    ) -> None:
        """kernel: attention of padded passes (`cuda_graphs.py`); None: no pass is padded."""
        self.model, self.memory, self.others = model, memory, others
        kind = memory.device.type
        row_bytes = memory.shape.num_numbers * memory.dtype.itemsize
        self._limits = GroupLimits(max_padding=MAX_PADDING[kind], max_group_rows=GROUP_BYTES[kind] // row_bytes)
        self.grid = None if kernel is None else Grid(model, memory, kernel)

    def run(self, given: Pass) -> Tensor:
        """Adds keys and values to the KV cache; returns logits [num_wanted, vocab_size] in the model's dtype."""
        # trees that are not chains
        branching = {number: tree for number, own in given.parents.items() if (tree := Tree.of(own)) is not None}
        layout = lay_out(given.starts, given.counts, given.tables, self.memory.page_size, branching)
        logits = None if self.grid is None else self.grid.run(given.tokens, given.wanted, layout)
        return self._run(given, layout) if logits is None else logits

    def _run(self, given: Pass, layout: Layout) -> Tensor:
        num, wanted = len(given.tokens), given.wanted
        numbers = np.concatenate((given.tokens, layout.positions, layout.slots, np.array(wanted, np.int64)))
        with self._told(given):
            ints = sent(numbers, self.memory.device)
            every = list(wanted) == list(range(num))  # as in a drafting step: all rows
            out = self.model(
                input_ids=ints[None, :num],
                position_ids=ints[None, num : 2 * num],
                use_cache=False,
                logits_to_keep=0 if every else ints[3 * num :],  # 0: all rows
                goodspeed_batch=Batch(self.memory, layout, ints[2 * num : 3 * num], self._limits),
            )
        logits: Tensor = out.logits[0]
        return logits

    def copy(self, given: Copy) -> None:
        with self._told(given):
            self.memory.copy(*(sent(slots, self.memory.device) for slots in (given.source, given.target)))

    def _told(self, order: Order) -> AbstractContextManager[None]:
        return nullcontext() if self.others is None else self.others.told(order)
