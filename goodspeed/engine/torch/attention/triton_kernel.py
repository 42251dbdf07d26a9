"""Paged attention of a decode pass in Triton: ragged queries, grouped heads, sliding windows and token trees.

One program attends for the queries of a block (`cuda_graphs.Inputs`), the query heads that share a key/value head, and
one part of the block's keys; a second kernel joins the parts. The grid depends on the number of rows alone, so a CUDA
graph can hold it. The softmax is computed tile by tile (Milakov and Gimelshein, arXiv 1805.02867), the parts of the
keys are joined as in Flash-Decoding. Import this file only where Triton is installed; torch's CUDA builds bring it.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from goodspeed.engine.torch.attention.cuda_graphs import BLOCK_QUERIES, Inputs
from goodspeed.engine.torch.kv_cache import KVPool

TILE = 64
"""Most keys multiplied at a time."""
FLOAT32_TILE = 16
"""The same in float32, in which larger tiles do not fit into registers (compiled for sm_90: 10 KB a thread spilled)."""
TILE_BYTES = 16 << 10
"""Most bytes of a tile of keys. Two tiles of keys and values, and the queries, fit into any GPU's shared memory."""


def attend(
    inputs: Inputs, pool: KVPool, layer: int, query: Tensor, scaling: float | None, window: int | None
) -> Tensor:
    """Returns the attention of query [num_rows, num_heads, key_dim] over the pool: [num_rows, num_heads, value_dim]."""
    num_rows, num_heads, key_dim = query.shape
    shape = pool.shape
    query = query if query.stride(2) == 1 else query.contiguous()
    num_parts = _num_parts(num_rows)
    parts = query.new_empty((num_parts, num_rows, num_heads, shape.value_dim), dtype=torch.float32)
    sums = query.new_empty((num_parts, num_rows, num_heads), dtype=torch.float32)
    output = query.new_empty((num_rows, num_heads, shape.value_dim))
    key_width, width = (triton.next_power_of_2(max(16, dim)) for dim in (key_dim, shape.value_dim))
    _attend_part[num_rows, shape.num_kv_heads, num_parts](
        query,
        pool.rows[layer],
        parts,
        sums,
        inputs.positions,
        inputs.limits,
        inputs.seen,
        inputs.blocks,
        inputs.pages,
        key_dim**-0.5 if scaling is None else scaling,
        query.stride(0),
        query.stride(1),
        num_rows,
        window=window or 0,
        page_size=pool.page_size,
        num_kv_heads=shape.num_kv_heads,
        fold=num_heads // shape.num_kv_heads,
        key_dim=key_dim,
        value_dim=shape.value_dim,
        num_queries=max(16, triton.next_power_of_2(min(BLOCK_QUERIES, num_rows) * (num_heads // shape.num_kv_heads))),
        tile=FLOAT32_TILE if query.itemsize == 4 else min(TILE, max(16, TILE_BYTES // (key_width * query.itemsize))),
        key_width=key_width,
        value_width=width,
        num_parts=num_parts,
        num_stages=2,
    )
    _join_parts[num_rows, num_heads](
        parts,
        sums,
        output,
        num_rows,
        num_heads,
        value_dim=shape.value_dim,
        width=width,
        num_parts=num_parts,
        num_warps=1,
    )
    return output


def _num_parts(num_rows: int) -> int:
    """Returns the number of parts of each block's keys; few rows need more parts to occupy a GPU."""
    return 8 if num_rows <= 16 else 4 if num_rows <= 64 else 2


@triton.jit  # type: ignore[untyped-decorator]
def _attend_part(  # type: ignore[no-untyped-def]
    query,  # [num_rows, num_heads, key_dim] strides query_row, query_head, 1
    pool,  # [pool rows, num_kv_heads, key_dim + value_dim]
    parts,  # [num_parts, num_rows, num_heads, value_dim] float32
    sums,  # [num_parts, num_rows, num_heads] float32: log of the sum of exponentials
    positions,
    limits,
    seen,
    blocks,  # [4, num_rows]
    pages,
    scale,
    query_row,
    query_head,
    num_rows,
    window: tl.constexpr,  # 0: none
    page_size: tl.constexpr,
    num_kv_heads: tl.constexpr,
    fold: tl.constexpr,
    key_dim: tl.constexpr,
    value_dim: tl.constexpr,
    num_queries: tl.constexpr,
    tile: tl.constexpr,
    key_width: tl.constexpr,
    value_width: tl.constexpr,
    num_parts: tl.constexpr,
) -> None:
    block, kv_head, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first, count = tl.load(blocks + block), tl.load(blocks + num_rows + block)
    end, first_page = tl.load(blocks + 2 * num_rows + block), tl.load(blocks + 3 * num_rows + block)
    if count == 0:
        return
    lines = tl.arange(0, num_queries)  # each is a query, of one of the heads that share kv_head
    row, head = first + lines // fold, kv_head * fold + lines % fold
    is_used = lines < count * fold
    position = tl.load(positions + row, mask=is_used, other=1 << 40)
    limit = tl.load(limits + row, mask=is_used, other=0)
    nodes = tl.load(seen + row, mask=is_used, other=0)
    low = end * 0
    if window > 0:
        low = tl.maximum(tl.min(position, 0) - window + 1, 0)
    share = tl.cdiv(tl.cdiv(end - low, tile), num_parts) * tile
    begin = low + part * share
    stop = tl.minimum(end, begin + share)
    dims, value_dims = tl.arange(0, key_width), tl.arange(0, value_width)
    wanted = tl.load(
        query + row[:, None] * query_row + head[:, None] * query_head + dims[None, :],
        mask=is_used[:, None] & (dims < key_dim)[None, :],
        other=0.0,
    )
    highest = tl.full([num_queries], float("-inf"), tl.float32)
    total = tl.zeros([num_queries], tl.float32)
    mixed = tl.zeros([num_queries, value_width], tl.float32)
    for start in range(begin, stop, tile):
        key = start + tl.arange(0, tile)
        is_there = key < stop
        page = tl.load(pages + first_page + key // page_size, mask=is_there, other=0)
        place = ((page * page_size + key % page_size) * num_kv_heads + kv_head) * (key_dim + value_dim)
        keys = tl.load(
            pool + place[None, :] + dims[:, None], mask=is_there[None, :] & (dims < key_dim)[:, None], other=0.0
        )
        scores = tl.dot(wanted, keys, input_precision="ieee") * scale
        beyond = key[None, :] - limit[:, None]
        node = tl.minimum(tl.maximum(beyond, 0), 62)
        is_seen = beyond < 0
        if window > 0:
            is_seen = is_seen & (key[None, :] > position[:, None] - window)
        is_seen = is_seen | ((beyond >= 0) & (((nodes[:, None] >> node) & 1) == 1))
        is_seen = is_seen & is_there[None, :] & is_used[:, None]
        scores = tl.where(is_seen, scores, float("-inf"))
        higher = tl.maximum(highest, tl.max(scores, 1))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        weights, shrunk = tl.exp(scores - base[:, None]), tl.exp(highest - base)
        values = tl.load(
            pool + place[:, None] + key_dim + value_dims[None, :],
            mask=is_there[:, None] & (value_dims < value_dim)[None, :],
            other=0.0,
        )
        total = total * shrunk + tl.sum(weights, 1)
        mixed = mixed * shrunk[:, None] + tl.dot(weights.to(values.dtype), values, input_precision="ieee")
        highest = higher
    divisor = tl.where(total > 0, total, 1.0)
    place = (part * num_rows + row) * (num_kv_heads * fold) + head
    tl.store(
        parts + place[:, None] * value_dim + value_dims[None, :],
        mixed / divisor[:, None],
        mask=is_used[:, None] & (value_dims < value_dim)[None, :],
    )
    tl.store(sums + place, tl.where(total > 0, highest + tl.log(divisor), float("-inf")), mask=is_used)


@triton.jit  # type: ignore[untyped-decorator]
def _join_parts(  # type: ignore[no-untyped-def]
    parts,
    sums,
    output,  # [num_rows, num_heads, value_dim]
    num_rows,
    num_heads,
    value_dim: tl.constexpr,
    width: tl.constexpr,
    num_parts: tl.constexpr,
) -> None:
    place = tl.program_id(0) * num_heads + tl.program_id(1)
    part, dims = tl.arange(0, num_parts), tl.arange(0, width)
    places = part * num_rows * num_heads + place
    logs = tl.load(sums + places)  # a row sees its own key, so the largest is finite
    weights = tl.exp(logs - tl.max(logs, 0))
    weights = weights / tl.sum(weights, 0)
    values = tl.load(parts + places[:, None] * value_dim + dims[None, :], mask=(dims < value_dim)[None, :], other=0.0)
    mixed = tl.sum(values * weights[:, None], 0)
    tl.store(output + place * value_dim + dims, mixed.to(output.dtype.element_ty), mask=dims < value_dim)
