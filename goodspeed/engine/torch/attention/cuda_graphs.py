"""Pads small forward passes to a few numbers of rows, so that each number has a CUDA graph; attention is one kernel.

Larger passes use the same kernel without a graph: a GPU computes them for longer than Python hands out their work.

Everything that a pass reads lies in one buffer on the device, which one transfer fills. Padding rows write to the KV
cache's spare page, which no session reads.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from goodspeed.engine.model_files.config_checks import expected_windows
from goodspeed.engine.torch.attention.layout import Layout, lay_out
from goodspeed.engine.torch.attention.trees import Ints
from goodspeed.engine.torch.kv_cache import KVPool, staged
from goodspeed.exact.trees import MAX_NODES

log = logging.getLogger(__name__)

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 384, 512)
"""Numbers of rows with a graph."""
MULTIPLE, MAX_ROWS = 16, 4096
"""Larger passes are padded to a multiple of rows; more rows than the last number do without the kernel."""
MAX_CHUNK = 256
"""Tokens of one session beyond which torch's own attention is used: on an H200, with the shape of Qwen3-14B, 512 tokens
of a prompt take 31 ms and by the kernel 32, after 6,144 others 45 and 61. Fewer than 512 were not tried."""
BLOCK_QUERIES = 8
"""Most queries of one session that attend together: a round's draft mostly fits."""
CAPACITY = 1 << 20
"""Numbers in the buffer; nearly all are for page lists."""
NUM_FIELDS = 9


@dataclass(frozen=True)
class Inputs:
    """Inputs of a padded pass: views of the buffer, in place from pass to pass."""

    tokens: Tensor  # [num_rows]
    positions: Tensor  # [num_rows] in the text
    slots: Tensor  # [num_rows] row of the pool
    limits: Tensor  # [num_rows] number of leading keys of its session (or window) that a row sees
    seen: Tensor  # [num_rows] bit i: the row also sees key `limits + i` (an ancestor in its tree, or itself)
    blocks: Tensor  # [4, num_rows] of each block: first row, number of rows, keys to read, first index into `pages`
    pages: Tensor  # pages of all sessions, one after the other

    @classmethod
    def of(cls, buffer: Tensor, num_rows: int) -> "Inputs":
        fields = buffer[: NUM_FIELDS * num_rows].view(NUM_FIELDS, num_rows)
        return cls(*fields[:5], fields[5:], buffer[NUM_FIELDS * num_rows :])  # type: ignore[call-arg]


class Kernel(Protocol):
    """Attention over the pool: query [num_rows, num_heads, key_dim] -> [num_rows, num_heads, value_dim]."""

    def __call__(
        self, inputs: Inputs, pool: KVPool, layer: int, query: Tensor, scaling: float | None, window: int | None
    ) -> Tensor: ...


def plain_attend(
    inputs: Inputs, pool: KVPool, layer: int, query: Tensor, scaling: float | None, window: int | None
) -> Tensor:
    """Attends as a `Kernel` does, block by block with torch's own attention: the reference for the one in Triton."""
    output = query.new_empty((*query.shape[:2], pool.shape.value_dim))
    for first, count, end, first_page in inputs.blocks.T.tolist():
        if not count:
            break
        rows = slice(first, first + count)
        pages = inputs.pages[first_page : first_page - (-end // pool.page_size)]
        gathered = pool.split(pool.pages[layer][pages], 1)
        keys, values = (one.repeat_interleave(query.shape[1] // one.shape[1], 1) for one in gathered)
        key = torch.arange(keys.shape[2], device=query.device)
        beyond = key - inputs.limits[rows, None]
        is_seen = (inputs.seen[rows, None] >> beyond.clamp(0, MAX_NODES)) & 1 == 1
        is_seen = torch.where(beyond < 0, key > inputs.positions[rows, None] - (window or 1 << 40), is_seen)
        found = scaled_dot_product_attention(
            query[rows].transpose(0, 1)[None], keys, values, is_seen[None, None], scale=scaling
        )
        output[rows] = found[0].transpose(0, 1)
    return output


@dataclass(frozen=True)
class Padded:
    """The state of a padded pass that each layer's attention uses (`interface.Attends`)."""

    inputs: Inputs
    pool: KVPool
    kernel: Kernel

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float | None, window: int | None
    ) -> Tensor:
        """Takes and returns the shapes of `gathered.Batch.attend`."""
        self.pool.write(layer, self.inputs.slots, key, value)
        return self.kernel(self.inputs, self.pool, layer, query, scaling, window)


class Grid:
    """A model that runs padded passes, from CUDA graphs where the device has them."""

    def __init__(self, model: nn.Module, memory: KVPool, kernel: Kernel) -> None:
        self.model, self.memory, self.kernel = model, memory, kernel
        config: Any = model.config
        windows = expected_windows(config.get_text_config(decoder=True))
        self._max_depth = min((window for window in windows if window is not None), default=MAX_NODES + 1) - 1
        self._buffer = torch.zeros(CAPACITY, dtype=torch.int64, device=memory.device)
        self._stream: torch.cuda.Stream | None = None  # None: no graphs
        if memory.device.type == "cuda":
            self._stream = torch.cuda.Stream(memory.device)  # type: ignore[no-untyped-call]
        self._graphs: dict[int, tuple[torch.cuda.CUDAGraph, Tensor]] = {}  # by number of rows; with their logits
        self._too_large: set[int] = set()  # numbers of rows for whose graph there was no memory

    def run(self, tokens: Ints, wanted: Sequence[int], layout: Layout) -> Tensor | None:
        """Computes logits [num_wanted, vocab_size]; returns None and does nothing if the pass does not fit the grid."""
        num_rows = next((size for size in SIZES if size >= len(tokens)), -(-len(tokens) // MULTIPLE) * MULTIPLE)
        deepest = max((int(tree.depths.max()) for tree in layout.trees.values()), default=0)
        if (
            num_rows > MAX_ROWS
            or max(layout.counts) > MAX_CHUNK
            or deepest > self._max_depth
            or any(len(tree) > MAX_NODES for tree in layout.trees.values())
        ):
            return None
        numbers = np.concatenate((inputs_of(tokens, layout, num_rows, self.memory.spare), np.array(wanted, np.int64)))
        if len(numbers) > CAPACITY:
            return None
        self._buffer[: len(numbers)].copy_(staged(numbers, self.memory.device), non_blocking=True)
        rows = self._buffer[len(numbers) - len(wanted) : len(numbers)]
        if num_rows > SIZES[-1]:
            return self._call(num_rows, rows)
        return self._logits(num_rows).index_select(0, rows)  # a copy: the next pass overwrites a graph's logits

    @torch.inference_mode()
    def prepare(self) -> int:
        """Captures all graphs, the largest first: the others fit into its memory. Returns how many there are."""
        size, spare = self.memory.page_size, self.memory.spare
        for num_rows in reversed(SIZES):
            counts = [min(MAX_CHUNK, num_rows - first) for first in range(0, num_rows, MAX_CHUNK)]
            tables = [np.full(-(-count // size), spare) for count in counts]
            self.run(np.zeros(num_rows, np.int64), [0], lay_out([0] * len(counts), counts, tables, size))
        return len(self._graphs)

    def _logits(self, num_rows: int) -> Tensor:
        if self._stream is not None and num_rows not in self._graphs and num_rows not in self._too_large:
            try:
                self._graphs[num_rows] = self._capture(num_rows, self._stream)
            except torch.OutOfMemoryError as error:
                self._too_large.add(num_rows)
                log.warning("passes of %d rows run without a CUDA graph: %s", num_rows, error)
            except RuntimeError as error:  # e.g. the model synchronizes with the device between layers
                self._stream = None
                log.warning("passes of %d rows and fewer run without CUDA graphs: %s", num_rows, error)
        if num_rows not in self._graphs:
            return self._call(num_rows)
        graph, logits = self._graphs[num_rows]
        graph.replay()
        return logits

    def _capture(self, num_rows: int, stream: torch.cuda.Stream) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        here = torch.cuda.current_stream(self.memory.device)
        stream.wait_stream(here)
        graph, pool = torch.cuda.CUDAGraph(), next((one.pool() for one, _ in self._graphs.values()), None)
        with torch.cuda.stream(stream):  # also returns to `here` after a failed capture
            self._call(num_rows)  # compiles kernels and allocates libraries' workspaces before the capture
            with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
                logits = self._call(num_rows)
        here.wait_stream(stream)
        return graph, logits

    def _call(self, num_rows: int, wanted: Tensor | None = None) -> Tensor:
        """Computes logits [num_rows, vocab_size], or those of the wanted rows."""
        inputs = Inputs.of(self._buffer, num_rows)
        out = self.model(
            input_ids=inputs.tokens[None],
            position_ids=inputs.positions[None],
            use_cache=False,
            logits_to_keep=0 if wanted is None else wanted,  # 0: all rows
            goodspeed_batch=Padded(inputs, self.memory, self.kernel),
        )
        logits: Tensor = out.logits[0]
        return logits


def inputs_of(tokens: Ints, layout: Layout, num_rows: int, spare: int) -> Ints:
    """Returns the buffer's contents for `Inputs.of`. The padding is one more chunk, of rows that see one key."""
    num, size = len(tokens), layout.page_size
    starts, counts = np.append(layout.starts, 0), np.append(layout.counts, num_rows - num)
    offsets, num_pages = counts.cumsum() - counts, np.append(-(-(layout.starts + layout.counts) // size), 1)
    fields = np.zeros((NUM_FIELDS, num_rows), np.int64)
    fields[2], fields[3] = spare * size, 1
    rows = np.repeat(layout.starts - offsets[:-1], layout.counts) + np.arange(num)
    fields[:4, :num] = tokens, layout.positions, layout.slots, rows + 1
    for number, tree in layout.trees.items():
        end, num_new = int(offsets[number + 1]), min(len(tree), int(counts[number]))  # earlier nodes are cached
        nodes = slice(end - num_new, end)
        fields[3, nodes] = rows[end - 1] + 1 - len(tree)
        fields[4, nodes] = (tree.sees @ (1 << np.arange(len(tree))))[-num_new:]
    most = min(BLOCK_QUERIES, num_rows)
    num_blocks = -(-counts // most)
    chunk = np.repeat(np.arange(len(counts)), num_blocks)
    done = most * (np.arange(len(chunk)) - np.repeat(num_blocks.cumsum() - num_blocks, num_blocks))
    count = np.minimum(most, counts[chunk] - done)
    end_of = np.where(chunk < len(layout.counts), starts[chunk] + done + count, 1)
    fields[5:, : len(chunk)] = offsets[chunk] + done, count, end_of, (num_pages.cumsum() - num_pages)[chunk]
    pages = layout.tables[np.arange(layout.tables.shape[1]) < num_pages[:-1, None]]
    return np.concatenate((fields.ravel(), pages, [spare]))
