"""Forward passes that are laid out already: plain integers in, logits out, keys and values left in the memory.

So where a model is split over several processes, each of them can compute a pass that one has laid out.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from goodspeed.engine.paged.batch import Batch
from goodspeed.engine.paged.layout import GroupLimits, Layout, lay_out
from goodspeed.engine.paged.memory import KVPool
from goodspeed.engine.paged.trees import Ints, Tree

GROUP_BYTES = {"cpu": 4 << 20, "cuda": 1 << 29}  # what a group gathers should stay in a CPU's cache
MAX_PADDING = {"cpu": 1 << 10, "cuda": 1 << 18}  # a launch costs a GPU more than a little padding


@dataclass(frozen=True)
class Pass:
    """All that a forward pass needs to know; chunk i appends counts[i] tokens to starts[i] cached ones."""

    tokens: Ints  # [num_tokens]
    wanted: Sequence[int]  # packed position of every wanted row of logits
    starts: Sequence[int]  # [num_chunks]
    counts: Sequence[int]  # [num_chunks]
    tables: Sequence[Ints]  # [num_chunks] pages of each session, new ones included; none where the pass follows
    parents: Mapping[int, Sequence[int]] = field(default_factory=dict)  # by chunk, of the nodes of its tree
    follows: bool = False  # the last pass, one token later (`Layout.following`)

    def __post_init__(self) -> None:
        if len(self.starts) != len(self.counts) or sum(self.counts) != len(self.tokens):
            raise ValueError(f"{len(self.tokens)} tokens are not those of chunks of {self.counts}")


@dataclass(frozen=True)
class Copy:
    """Rows of keys and values that are copied within the memory, all at once."""

    source: Ints  # [num_rows] slots
    target: Ints  # [num_rows] slots


@dataclass(frozen=True)
class Memory:
    """The size of the key/value memory."""

    num_pages: int
    page_size: int


Order = Pass | Copy | Memory


class Others(Protocol):
    """Interface of the other ranks of a model that is split: they compute each order beside this process."""

    num_ranks: int  # this process is one of them

    def told(self, order: Order) -> AbstractContextManager[None]:
        """Tells the order, which this process computes inside the block."""
        ...


class Passes:
    """A model together with its key/value memory: runs one pass after the other."""

    def __init__(self, model: nn.Module, memory: KVPool, others: Others | None = None) -> None:
        self.model, self.memory, self.others = model, memory, others
        kind = memory.device.type
        row_bytes = memory.shape.num_numbers * memory.dtype.itemsize
        self._limits = GroupLimits(max_padding=MAX_PADDING[kind], max_group_rows=GROUP_BYTES[kind] // row_bytes)
        self._last: Batch | None = None  # of the last pass, if that succeeded

    def is_followed_by(self, starts: Sequence[int], counts: Sequence[int]) -> bool:
        """Returns whether a pass of these chunks, of the same sessions as the last, may follow it."""
        return self._last is not None and self._last.layout.is_followed_by(starts, counts)

    def run(self, given: Pass) -> Tensor:
        """Logits [num_wanted, vocab_size] in the model's dtype. ValueError where there is nothing to follow."""
        last, self._last = self._last, None  # after a pass that failed nothing is gone on from
        layout = self._layout(given, last)
        num, wanted = len(given.tokens), given.wanted
        numbers = np.concatenate((given.tokens, layout.positions, layout.slots, np.array(wanted, np.int64)))
        with self._told(given):
            ints = torch.from_numpy(numbers).to(self.memory.device, non_blocking=True)
            slots = ints[2 * num : 3 * num]
            if given.follows and last is not None:
                batch = last.following(layout, slots)
            else:
                batch = Batch(self.memory, layout, slots, self._limits)
            every = list(wanted) == list(range(num))  # as in a drafting step: nothing to pick
            out = self.model(
                input_ids=ints[None, :num],
                position_ids=ints[None, num : 2 * num],
                use_cache=False,
                logits_to_keep=0 if every else ints[3 * num :],  # 0 keeps all
                goodspeed_batch=batch,
            )
        self._last = batch
        logits: Tensor = out.logits[0]
        return logits

    def copy(self, given: Copy) -> None:
        with self._told(given):
            source, target = (torch.from_numpy(slots) for slots in (given.source, given.target))
            device = self.memory.device
            self.memory.copy(source.to(device, non_blocking=True), target.to(device, non_blocking=True))

    def _layout(self, given: Pass, last: Batch | None) -> Layout:
        if not given.follows:
            trees = {number: Tree.of(parents) for number, parents in given.parents.items()}
            branching = {number: tree for number, tree in trees.items() if tree is not None}  # the others are chains
            return lay_out(given.starts, given.counts, given.tables, self.memory.page_size, branching)
        if last is None:
            raise ValueError("a pass follows none that succeeded")
        return last.layout.following()

    def _told(self, order: Order) -> AbstractContextManager[None]:
        return nullcontext() if self.others is None else self.others.told(order)
