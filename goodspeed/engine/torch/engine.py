"""Serves the sessions of a checkpoint: verify chunks, prefill chunks and single drafting steps in one packed pass.

See `Engine` for what each method promises. This file lays out a pass; `passes.py` computes it.
"""

from collections.abc import Hashable, Sequence
from contextlib import nullcontext
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from goodspeed.engine.base import Checkpoint, masked, with_masks
from goodspeed.engine.paged.cache_size import make_pool
from goodspeed.engine.paged.chunks import Chunk, TreePath, check_paths, extended
from goodspeed.engine.torch.attention.cuda_graphs import Kernel
from goodspeed.engine.torch.kv_cache import KVPool, KVShape, bytes_per_page
from goodspeed.engine.torch.passes import Copy, Memory, Others, Pass, Passes


class Tried(NamedTuple):
    """A checkpoint's model that can be served: paged attention computes its logits (`trial.py`)."""

    model: nn.Module  # the module to run
    shape: KVShape  # of a layer; of a split model, of this rank's part
    num_layers: int
    kernel: Kernel | None  # attention of padded passes; None: no pass is padded


class TorchEngine:
    """A checkpoint with the KV cache of its sessions."""

    has_trees = True
    change_rows = 0.0
    least_rows = 1
    reads_per_row = False
    computed: float | None = None

    def __init__(
        self,
        checkpoint: Checkpoint,
        tried: Tried,
        *,
        num_pages: int | None = None,
        memory_fraction: float | None = None,
        page_size: int = 16,
        prefix_cache: bool = False,
        others: Others | None = None,
        beside_bytes: int = 0,
    ) -> None:
        """See `EngineKind.start`. num_pages: per rank of a split model.

        others: ranks that hold the other parts of a split model; None: the model is not split.
        """
        self.checkpoint = checkpoint
        num_sharing = others.num_ranks if others is not None and checkpoint.device.type == "cpu" else 1
        one_page = bytes_per_page(tried.shape, tried.num_layers, page_size, checkpoint.dtype)
        self.pool = make_pool(
            (one_page + beside_bytes * page_size) * num_sharing,
            page_size,
            checkpoint.device,
            num_pages=num_pages,
            memory_fraction=memory_fraction,
            prefix_cache=prefix_cache,
        )
        size = Memory(self.pool.num_pages, page_size)
        with nullcontext() if others is None else others.told(size):
            self.memory = KVPool(
                tried.shape, tried.num_layers, size.num_pages, page_size, checkpoint.dtype, checkpoint.device
            )
        self._passes = Passes(tried.model, self.memory, others, tried.kernel)
        self.num_graphs: int | None = None  # None: no graphs were captured

    def prepare(self) -> None:
        """Captures the CUDA graphs of padded passes."""
        if self._passes.grid is not None:
            self.num_graphs = self._passes.grid.prepare()

    @property
    def has_finite_keys(self) -> bool:
        return self.memory.is_finite

    @torch.inference_mode()
    def forward(self, chunks: Sequence[Chunk]) -> Tensor:
        """See `Engine.forward`; returns an inference-mode tensor.

        Every node of a tree counts towards the context, since each has its own row.
        """
        chunks = [with_masks(chunk, self.pool, self.checkpoint) for chunk in chunks]
        return masked(self._forward(chunks).float(), self.checkpoint)

    @torch.inference_mode()
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

    @torch.inference_mode()
    def clear(self, keys: Sequence[Hashable]) -> None:
        """Overwrites the pages that only these sessions have, because their numbers may not be finite.

        A page's next session reads all rows and hides the unwritten ones, but a hidden NaN still makes its sums NaN.
        The spare page has finite numbers. The pages leave the prefix cache. Rows that a session has dropped are not
        overwritten.
        """
        rows = np.arange(self.pool.page_size)
        target = self.pool.withdraw_all(keys)[:, None] * len(rows) + rows
        source = np.tile(self.memory.spare * len(rows) + rows, len(target))
        self._passes.copy(Copy(source, target.ravel()))

    def _forward(self, chunks: Sequence[Chunk]) -> Tensor:
        """Computes logits [sum(num_logits), vocab_size] in the model's dtype, rows in the order of chunks."""
        with extended(self.pool, chunks) as starts:
            order = sorted(range(len(chunks)), key=lambda i: (-len(chunks[i].tokens), -starts[i]))
            packed = [chunks[i] for i in order]
            counts = [len(chunk.tokens) for chunk in packed]
            parents = {number: chunk.parents for number, chunk in enumerate(packed) if chunk.parents}
            tables = [self.pool.table(chunk.key) for chunk in packed]
            tokens = np.fromiter(chain.from_iterable(chunk.tokens for chunk in packed), np.int64, sum(counts))
            wanted = _wanted(chunks, order)
            return self._passes.run(Pass(tokens, wanted, [starts[i] for i in order], counts, tables, parents))


def _wanted(chunks: Sequence[Chunk], order: list[int]) -> list[int]:
    """Returns the packed positions of the wanted logits, in the order of chunks."""
    ends, end = [0] * len(chunks), 0
    for i in order:
        ends[i] = end = end + len(chunks[i].tokens)
    wanted = zip(ends, (chunk.num_logits for chunk in chunks), strict=True)
    return [row for end, num in wanted for row in range(end - num, end)]
