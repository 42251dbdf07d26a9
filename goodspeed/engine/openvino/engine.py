"""Serves the sessions of a compiled model: see `Engine` for what each method promises."""

from collections.abc import Hashable, Sequence

import numpy as np
import torch
from torch import Tensor

from goodspeed.engine.base import Checkpoint, masked, with_masks
from goodspeed.engine.openvino.model import PAGE_SIZE, Compiled, Rows
from goodspeed.engine.paged.cache_size import make_pool
from goodspeed.engine.paged.chunks import Chunk, TreePath, check_paths, extended
from goodspeed.engine.paged.pages import Pages


class OpenVinoEngine:
    """A model with the KV cache of its sessions. Its drafts are chains: two nodes of a tree at one position would write
    to the same row of a page."""

    has_trees = False
    has_finite_keys = False
    reads_per_row = True

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        num_pages: int | None = None,
        memory_fraction: float | None = None,
        page_size: int = PAGE_SIZE,
        prefix_cache: bool = False,
        beside_bytes: int = 0,
    ) -> None:
        """See `EngineKind.start`. page_size: what `num_pages` means; the engine's own pages are of PAGE_SIZE."""
        self.checkpoint = checkpoint
        compiled: Compiled = checkpoint.model
        self.pool = make_pool(
            compiled.page_bytes + beside_bytes * PAGE_SIZE,
            PAGE_SIZE,
            checkpoint.device,
            num_pages=None if num_pages is None else -(-num_pages * page_size // PAGE_SIZE),
            memory_fraction=memory_fraction,
            prefix_cache=prefix_cache,
        )
        self.change_rows, self.least_rows = compiled.change_rows, compiled.least_rows
        self._passes = compiled.with_caches(self.pool.num_pages)

    @property
    def computed(self) -> float | None:
        return self._passes.computed

    def forward(self, chunks: Sequence[Chunk]) -> Tensor:
        chunks = [with_masks(chunk, self.pool, self.checkpoint) for chunk in chunks]
        if any(chunk.parents for chunk in chunks):
            raise ValueError("this engine computes chains only")
        with extended(self.pool, chunks) as starts:
            logits = self._passes.run(self._rows(chunks, starts))
        return masked(torch.from_numpy(logits), self.checkpoint)

    def keep(self, paths: Sequence[TreePath]) -> None:
        check_paths(self.pool, paths)
        if any(not path.is_first for path in paths):
            raise ValueError("this engine keeps chains only")
        for path in paths:
            self.pool.truncate(path.key, path.end)

    def clear(self, keys: Sequence[Hashable]) -> None:
        self._passes.clear(self.pool.withdraw_all(keys))

    def _rows(self, chunks: Sequence[Chunk], starts: Sequence[int]) -> Rows:
        tokens, positions, pages, wanted = list[int](), list[int](), list[Pages](), list[int]()
        for chunk, start in zip(chunks, starts, strict=True):
            table, own = self.pool.table(chunk.key), range(start, start + len(chunk.tokens))
            tokens += chunk.tokens
            positions += own
            pages += [table[: position // PAGE_SIZE + 1] for position in own]
            wanted += range(len(tokens) - chunk.num_logits, len(tokens))
        at = np.array(positions, np.int64)
        return Rows(
            np.array(tokens, np.int64), at, np.concatenate(pages), at // PAGE_SIZE + 1, np.array(wanted, np.int64)
        )
