"""One packed forward pass: chunks in, logits out, keys and values left in the pool.

Knows nothing about checkpoints or memory sizes; it takes a model whose attention is `goodspeed_paged` and two pools,
the bookkeeping one and the tensors.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np
import torch
from torch import Tensor, nn

from goodspeed.engine.paged.batch import Batch
from goodspeed.engine.paged.layout import GroupLimits, lay_out
from goodspeed.engine.paged.memory import KVPool
from goodspeed.engine.paged.pages import PagePool
from goodspeed.engine.paged.trees import Tree
from goodspeed.errors import PoolExhausted

GROUP_BYTES = {"cpu": 4 << 20, "cuda": 1 << 29}  # what a group gathers should stay in a CPU's cache
MAX_PADDING = {"cpu": 1 << 10, "cuda": 1 << 18}  # a launch costs a GPU more than a little padding


@dataclass(frozen=True)
class Chunk:
    """Tokens to append to a session at its cached length; logits are returned for the last `num_logits` of them.

    parents: of the last tokens, where they are a tree: of each its parent's index among them, or -1 for the token
    before them all. Parents come first. Every other token follows the one before it.
    """

    key: Hashable
    tokens: Sequence[int]
    num_logits: int
    parents: Sequence[int] | None = None


@dataclass(frozen=True)
class _Last:
    """The last pass that succeeded."""

    keys: list[Hashable]
    batch: Batch


class Packed:
    """A model together with the memory of its sessions."""

    def __init__(self, model: nn.Module, pool: PagePool, memory: KVPool) -> None:
        self.model, self.pool, self.memory = model, pool, memory
        kind = memory.device.type
        row_bytes = memory.shape.num_numbers * memory.dtype.itemsize
        self._last: _Last | None = None
        self._limits = GroupLimits(max_padding=MAX_PADDING[kind], max_group_rows=GROUP_BYTES[kind] // row_bytes)

    def forward(self, chunks: Sequence[Chunk]) -> Tensor:
        """Logits [sum(num_logits), vocab_size] in the model's dtype, rows in the order of chunks.

        Raises PoolExhausted, and changes nothing, when the pool lacks the pages for all chunks together.
        """
        self._check(chunks)
        starts = [self.pool.length(chunk.key) for chunk in chunks]
        order = sorted(range(len(chunks)), key=lambda i: (-len(chunks[i].tokens), -starts[i]))
        try:
            for chunk in chunks:
                self.pool.extend(chunk.key, len(chunk.tokens))
            return self._run([chunks[i] for i in order], [starts[i] for i in order], _wanted(chunks, order))
        except BaseException:
            for chunk, start in zip(chunks, starts, strict=True):
                _restore(self.pool, chunk.key, start)
            raise

    def keep(self, key: Hashable, length: int, path: Sequence[int]) -> None:
        """Keeps some of the tokens that a session has after its first `length`, by their index, and forgets the others.

        They are the nodes of a path through a tree, from its base down, so that their keys are rotated for the places
        that they get: behind each other, after the first `length`. ValueError, with nothing changed, for what is none.
        """
        places = [length, *(length + node for node in path)]
        ascends = all(one < other for one, other in pairwise(path))
        if min(places) < 0 or max(places) > self.pool.length(key) - bool(path) or not ascends or (path and path[0] < 0):
            raise ValueError(f"{list(path)} is no path through what follows {length} of {self.pool.length(key)} tokens")
        if list(path) != list(range(len(path))):
            slots = [self.pool.slots(key, [length + node for node in nodes]) for nodes in (path, range(len(path)))]
            source, target = (torch.from_numpy(one).to(self.memory.device, non_blocking=True) for one in slots)
            self.memory.copy(source, target)
        self.pool.truncate(key, length + len(path))

    def _check(self, chunks: Sequence[Chunk]) -> None:
        if not chunks or len({chunk.key for chunk in chunks}) != len(chunks):
            raise ValueError("a forward pass needs sessions, each of them once")
        for chunk in chunks:
            if not 0 <= chunk.num_logits <= len(chunk.tokens) or not chunk.tokens:
                raise ValueError(f"{chunk.num_logits} logits of {len(chunk.tokens)} tokens cannot be had")
            num_nodes, num_cached = len(chunk.parents or ()), self.pool.length(chunk.key)
            if num_nodes > len(chunk.tokens) or 0 < num_nodes == num_cached + len(chunk.tokens):
                raise ValueError(f"a tree of {num_nodes} nodes needs as many tokens, and one before it")
        needed = sum(self.pool.pages_needed(chunk.key, len(chunk.tokens)) for chunk in chunks)
        if needed > self.pool.num_free:
            raise PoolExhausted(
                f"this batch needs {needed} pages and {self.pool.num_free} of {self.pool.num_pages} are free; "
                "free a session, or start with more memory"
            )

    def _run(self, chunks: list[Chunk], starts: list[int], wanted: list[int]) -> Tensor:
        keys, counts = [chunk.key for chunk in chunks], [len(chunk.tokens) for chunk in chunks]
        last = self._followed(keys, starts, counts)
        if last is None:
            tables = [self.pool.table(key) for key in keys]
            layout = lay_out(starts, counts, tables, self.pool.page_size, _trees(chunks))
        else:
            layout = last.layout.following()
        tokens = np.fromiter(chain.from_iterable(chunk.tokens for chunk in chunks), np.int64, len(layout.positions))
        ints = torch.from_numpy(np.concatenate((tokens, layout.positions, layout.slots, np.array(wanted, np.int64))))
        ints, num = ints.to(self.memory.device, non_blocking=True), len(tokens)
        every = wanted == list(range(num))  # as in a drafting step: nothing to pick
        slots = ints[2 * num : 3 * num]
        batch = last.following(layout, slots) if last else Batch(self.memory, layout, slots, self._limits)
        out = self.model(
            input_ids=ints[None, :num],
            position_ids=ints[None, num : 2 * num],
            use_cache=False,
            logits_to_keep=0 if every else ints[3 * num :],  # 0 keeps all
            goodspeed_batch=batch,
        )
        self._last = _Last(keys, batch)
        logits: Tensor = out.logits[0]
        return logits

    def _followed(self, keys: list[Hashable], starts: list[int], counts: list[int]) -> Batch | None:
        """Returns the last pass's batch one token later, if this pass adds one token to each of its sessions' pages.

        A session that is one token longer than it was before its last token has not been shortened since, so its pages
        are the same.
        """
        last, self._last = self._last, None  # after a pass that failed nothing is gone on from
        if last is None or last.keys != keys or not last.batch.layout.is_followed_by(starts, counts):
            return None
        return last.batch


def _trees(chunks: Sequence[Chunk]) -> dict[int, Tree]:
    """Returns the trees that are no chains, by chunk."""
    trees = {number: Tree.of(chunk.parents) for number, chunk in enumerate(chunks) if chunk.parents}
    return {number: tree for number, tree in trees.items() if tree is not None}


def _wanted(chunks: Sequence[Chunk], order: list[int]) -> list[int]:
    """Returns the packed position of every wanted row of logits, in the order of chunks."""
    ends, end = [0] * len(chunks), 0
    for i in order:
        ends[i] = end = end + len(chunks[i].tokens)
    wanted = zip(ends, (chunk.num_logits for chunk in chunks), strict=True)
    return [row for end, num in wanted for row in range(end - num, end)]


def _restore(pool: PagePool, key: Hashable, length: int) -> None:
    if length == 0:
        pool.free(key)
    elif pool.length(key) > length:
        pool.truncate(key, length)
