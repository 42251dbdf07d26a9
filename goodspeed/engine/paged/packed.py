"""One packed forward pass: chunks in, logits out, keys and values added to the pool.

This file lays out the pass; `passes.py` computes it.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np
from torch import Tensor, nn

from goodspeed.engine.paged.grid import Kernel
from goodspeed.engine.paged.memory import KVPool
from goodspeed.engine.paged.pages import PagePool
from goodspeed.engine.paged.passes import Copy, Others, Pass, Passes
from goodspeed.errors import PoolExhausted


@dataclass(frozen=True)
class Chunk:
    """Tokens to append to a session at its cached length; logits are returned for the final `num_logits` tokens.

    parents: each node's parent in the tree that the final tokens form, as an index within the tree; -1: the token
    before the tree. Parents come first. All other tokens form a chain. None: no tree. The first nodes of a tree
    longer than the chunk are the session's final cached tokens.

    num_masks: masks after the tokens, of a checkpoint that predicts several tokens in one pass; the final `num_logits`
    tokens and the tree include them. `Runner.forward` appends them, and drops them from the session after the pass.
    """

    key: Hashable
    tokens: Sequence[int]
    num_logits: int
    parents: Sequence[int] | None = None
    num_masks: int = 0


class TreePath(NamedTuple):
    """The path to retain of a tree: node indexes from a first node down; empty: no node is retained."""

    key: Hashable
    length: int  # tokens of the session before the tree
    nodes: tuple[int, ...]

    @property
    def end(self) -> int:
        """Length of the session, in tokens, once the path is retained."""
        return self.length + len(self.nodes)


class Packed:
    """A model with its KV cache."""

    def __init__(
        self,
        model: nn.Module,
        pool: PagePool,
        memory: KVPool,
        others: Others | None = None,
        kernel: Kernel | None = None,
    ) -> None:
        """others: ranks that hold the other parts of a split model; None: it is not split. The others: `Passes`."""
        self.pool, self.memory = pool, memory
        self._passes = Passes(model, memory, others, kernel)
        self._last_keys: list[Hashable] = []  # of the previous pass, if it succeeded

    def prepare(self) -> int | None:
        """Captures the CUDA graphs of padded passes; returns how many there are. None: no pass is padded."""
        return None if self._passes.grid is None else self._passes.grid.prepare()

    def forward(self, chunks: Sequence[Chunk]) -> Tensor:
        """Computes logits [sum(num_logits), vocab_size] in the model's dtype, rows in the order of chunks.

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

    def keep(self, paths: Sequence[TreePath]) -> None:
        """Retains a path through each session's tree and drops the other nodes. All rows are copied at once.

        A path leads from the base down, so its keys already have the rotations of their new positions: consecutive,
        after the text before the tree. ValueError, with nothing changed, for an invalid path or a session that comes
        twice.
        """
        if len({path.key for path in paths}) != len(paths):
            raise ValueError("each session may keep only one path")
        for path in paths:
            self._check_path(path)
        moved = [path for path in paths if path.nodes != tuple(range(len(path.nodes)))]
        if moved:
            slots = [self.pool.slots(path.key, [path.length + node for node in path.nodes]) for path in moved]
            places = [self.pool.slots(path.key, range(path.length, path.end)) for path in moved]
            self._passes.copy(Copy(np.concatenate(slots), np.concatenate(places)))
        for path in paths:
            self.pool.truncate(path.key, path.end)

    def clear(self, keys: Sequence[Hashable]) -> None:
        """Overwrites the pages that only these sessions have, because their numbers may not be finite.

        A page's next session reads all rows and hides the unwritten ones, but a hidden NaN still makes its sums NaN.
        The spare page has finite numbers. The pages leave the prefix cache. Rows that a session has dropped are not
        overwritten.
        """
        for key in keys:
            self.pool.withdraw(key)
        pages, counts = np.unique(np.concatenate([self.pool.table(key) for key in keys]), return_counts=True)
        is_own = counts == [self.pool.references(page) for page in pages.tolist()]
        rows = np.arange(self.pool.page_size)
        target = pages[is_own, None] * len(rows) + rows
        source = np.tile(self.memory.spare * len(rows) + rows, len(target))
        self._passes.copy(Copy(source, target.ravel()))

    def _check_path(self, path: TreePath) -> None:
        cached = self.pool.length(path.key)
        ascends = all(one < other for one, other in pairwise((-1, *path.nodes)))
        if not 0 <= path.length <= cached or not ascends or path.length + max(path.nodes, default=-1) >= cached:
            raise ValueError(f"{list(path.nodes)} is not a path of nodes after token {path.length} of {cached}")

    def _check(self, chunks: Sequence[Chunk]) -> None:
        if not chunks or len({chunk.key for chunk in chunks}) != len(chunks):
            raise ValueError("a forward pass needs sessions, each of them once")
        for chunk in chunks:
            if not 0 <= chunk.num_logits <= len(chunk.tokens) or not chunk.tokens:
                raise ValueError(f"{chunk.num_logits} logits are not possible for {len(chunk.tokens)} tokens")
            num_nodes, num_cached = len(chunk.parents or ()), self.pool.length(chunk.key)
            if 0 < num_nodes >= num_cached + len(chunk.tokens):
                raise ValueError(f"a tree of {num_nodes} nodes needs as many tokens, and one before it")
        needed = sum(self.pool.pages_needed(chunk.key, len(chunk.tokens)) for chunk in chunks)
        if needed > self.pool.num_free:
            raise PoolExhausted(
                f"this batch needs {needed} pages, but {self.pool.num_free} of {self.pool.num_pages} are free; "
                "free a session, or start with more memory"
            )

    def _run(self, chunks: list[Chunk], starts: list[int], wanted: list[int]) -> Tensor:
        keys, counts = [chunk.key for chunk in chunks], [len(chunk.tokens) for chunk in chunks]
        parents = {number: chunk.parents for number, chunk in enumerate(chunks) if chunk.parents}
        follows = not parents and self._follows(keys, starts, counts)
        tables = [] if follows else [self.pool.table(key) for key in keys]
        tokens = np.fromiter(chain.from_iterable(chunk.tokens for chunk in chunks), np.int64, sum(counts))
        logits = self._passes.run(Pass(tokens, wanted, starts, counts, tables, parents, follows))
        self._last_keys = keys
        return logits

    def _follows(self, keys: list[Hashable], starts: list[int], counts: list[int]) -> bool:
        """True if this pass appends one token to each session of the previous pass, within the same pages.

        A session exactly one token longer than at the previous pass was not truncated since, so its pages are the same.
        """
        last, self._last_keys = self._last_keys, []  # nothing follows a failed pass
        return last == keys and self._passes.is_followed_by(starts, counts)


def _wanted(chunks: Sequence[Chunk], order: list[int]) -> list[int]:
    """Returns the packed positions of the wanted logits, in the order of chunks."""
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
