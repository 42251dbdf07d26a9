"""One packed forward pass: chunks in, logits out, keys and values added to the pool.

This file lays out the pass; `passes.py` computes it.
"""

from collections.abc import Hashable, Sequence
from itertools import chain

import numpy as np
from torch import Tensor, nn

from goodspeed.engine.paged.chunks import Chunk, TreePath, check_paths, extended
from goodspeed.engine.paged.pages import PagePool
from goodspeed.engine.torch.attention.cuda_graphs import Kernel
from goodspeed.engine.torch.kv_cache import KVPool
from goodspeed.engine.torch.passes import Copy, Others, Pass, Passes


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

    def prepare(self) -> int | None:
        """Captures the CUDA graphs of padded passes; returns how many there are. None: no pass is padded."""
        return None if self._passes.grid is None else self._passes.grid.prepare()

    def forward(self, chunks: Sequence[Chunk]) -> Tensor:
        """Computes logits [sum(num_logits), vocab_size] in the model's dtype, rows in the order of chunks.

        Raises PoolExhausted, and changes nothing, when the pool lacks the pages for all chunks together.
        """
        with extended(self.pool, chunks) as starts:
            order = sorted(range(len(chunks)), key=lambda i: (-len(chunks[i].tokens), -starts[i]))
            return self._run([chunks[i] for i in order], [starts[i] for i in order], _wanted(chunks, order))

    def keep(self, paths: Sequence[TreePath]) -> None:
        """Retains a path through each session's tree and drops the other nodes. All rows are copied at once.

        A path leads from the base down, so its keys already have the rotations of their new positions: consecutive,
        after the text before the tree. ValueError, with nothing changed, for an invalid path or a session that comes
        twice.
        """
        check_paths(self.pool, paths)
        moved = [path for path in paths if not path.is_first]
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

    def _run(self, chunks: list[Chunk], starts: list[int], wanted: list[int]) -> Tensor:
        counts = [len(chunk.tokens) for chunk in chunks]
        parents = {number: chunk.parents for number, chunk in enumerate(chunks) if chunk.parents}
        tables = [self.pool.table(chunk.key) for chunk in chunks]
        tokens = np.fromiter(chain.from_iterable(chunk.tokens for chunk in chunks), np.int64, sum(counts))
        return self._passes.run(Pass(tokens, wanted, starts, counts, tables, parents))


def _wanted(chunks: Sequence[Chunk], order: list[int]) -> list[int]:
    """Returns the packed positions of the wanted logits, in the order of chunks."""
    ends, end = [0] * len(chunks), 0
    for i in order:
        ends[i] = end = end + len(chunks[i].tokens)
    wanted = zip(ends, (chunk.num_logits for chunk in chunks), strict=True)
    return [row for end, num in wanted for row in range(end - num, end)]
