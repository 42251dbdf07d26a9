"""Attention of one forward pass over the KV cache: writes new keys and values, then gathers and attends by group.

Indexes, masks and views of the scratch space are built once per pass, for all layers.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from goodspeed.engine.paged.layout import Group, GroupLimits, Layout, Plan, plan
from goodspeed.engine.paged.memory import KVPool, sent
from goodspeed.engine.paged.trees import Bools, Ints


@dataclass(frozen=True)
class Gather:
    """Pages to gather, and their part of the scratch space; key and value are views of that part."""

    pages: Tensor  # [num_chunks * num_pages]
    space: Tensor  # [num_chunks * num_pages, page_size, kv_heads, key + value]
    key: Tensor  # [num_chunks, kv_heads, num_keys, key_dim]
    value: Tensor  # [num_chunks, kv_heads, num_keys, value_dim]


@dataclass(frozen=True)
class GroupTensors:
    """The index tensors of one group, on the device."""

    group: Group
    source: Gather | slice  # slice: pool rows of one session with contiguous pages
    mask: Tensor | None  # [num_chunks, 1, num_queries * query heads per kv head, num_keys], 0 or -inf

    def following(self, positions: Tensor) -> "GroupTensors":
        """Returns this group one token later: each query also sees the key at its own position. Reuses the mask."""
        if isinstance(self.source, slice) and self.mask is None:
            return replace(self, source=slice(self.source.start, self.source.stop + 1))
        assert self.mask is not None
        rows = self.mask[:, 0, 0]  # [num_chunks, num_keys]; all heads of the one query share it
        rows.scatter_(1, positions[self.group.low : self.group.high, None], 0.0)
        return self


@dataclass(frozen=True)
class PlanTensors:
    groups: list[GroupTensors]
    padded: Tensor | None = None  # [num_rows] token of each padded query row; None: no padding
    unpadded: Tensor | None = None  # [num_tokens] row of each token


class Batch:
    """The state of one forward pass that each layer's attention uses (`attention.Attends`)."""

    def __init__(self, pool: KVPool, layout: Layout, slots: Tensor, limits: GroupLimits) -> None:
        self.pool, self.layout, self.slots, self.limits = pool, layout, slots, limits
        self._plans: dict[tuple[int | None, int], PlanTensors] = {}

    def following(self, layout: Layout, slots: Tensor) -> "Batch":
        """Returns the batch one token later (`Layout.following`), reusing its plans; this batch must not be used again.

        Rebuilds plans with a window, because the window's first page moves.
        """
        batch, positions = Batch(self.pool, layout, slots, self.limits), self._tensor(layout.positions)
        for (window, fold), planned in self._plans.items():
            if window is None:
                groups = [tensors.following(positions) for tensors in planned.groups]
                batch._plans[window, fold] = PlanTensors(groups)
        return batch

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float | None, window: int | None
    ) -> Tensor:
        """Writes key and value [kv_heads, num_tokens, dim]; query and result are [num_tokens, num_heads, dim]."""
        self.pool.write(layer, self.slots, key, value)
        plan = self._plan(window, query.shape[1] // key.shape[0])
        rows = query if plan.padded is None else query.index_select(0, plan.padded)
        outputs, first = [], 0
        for group in plan.groups:
            last = first + group.group.num_rows
            outputs.append(_attend(group, rows[first:last], *self._read(layer, group.source), scaling))
            first = last
        output = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
        return output if plan.unpadded is None else output.index_select(0, plan.unpadded)

    def _read(self, layer: int, source: Gather | slice) -> tuple[Tensor, Tensor]:
        if isinstance(source, slice):
            keys, values = self.pool.heads[layer]
            first, number = source.start, source.stop - source.start
            return keys.narrow(2, first, number), values.narrow(2, first, number)
        torch.index_select(self.pool.pages[layer], 0, source.pages, out=source.space)
        return source.key, source.value

    def _plan(self, window: int | None, fold: int) -> PlanTensors:
        """Returns the plan for a window, built once. fold: number of query heads that share a key/value head."""
        found = self._plans.get((window, fold))
        if found is None:
            made = plan(self.layout, window, self.limits)
            groups = [self._make_group(made, group, window, fold) for group in made.groups]
            rows = made.padding()
            found = PlanTensors(groups) if rows is None else PlanTensors(groups, *map(self._tensor, rows))
            self._plans[window, fold] = found
        return found

    def _make_group(self, made: Plan, group: Group, window: int | None, fold: int) -> GroupTensors:
        pages = made.pages(group)
        row = _first_row(pages, self.pool.page_size) if group.num_chunks == 1 else None
        if row is None:
            space = self.pool.scratch(len(pages))
            key, value = self.pool.split(space, group.num_chunks)
            source: Gather | slice = Gather(self._tensor(pages), space, key, value)
        elif (
            group.num_queries == 1 and group.low not in made.trees
        ):  # exactly the keys that the query sees: no mask is needed
            end = int(made.starts[group.low]) + 1
            return GroupTensors(group, slice(row + (0 if window is None else max(0, end - window)), row + end), None)
        else:
            source = slice(row, row + len(pages) * self.pool.page_size)
        return GroupTensors(group, source, self._make_mask(made, group, window, fold))

    def _make_mask(self, made: Plan, group: Group, window: int | None, fold: int) -> Tensor:
        query = made.query_rows(group)[:, :, None]
        num_keys = group.num_pages * self.pool.page_size
        key = np.arange(num_keys)
        hidden = key > query  # [num_chunks, num_queries, num_keys]
        if window is not None:
            hidden |= key <= query - window
        for chunk, first, unseen in made.hidden_in_trees(group, num_keys, window):
            hidden[chunk, first:] = unseen
        mask = torch.zeros(hidden.shape, dtype=self.pool.dtype, device=self.pool.device)
        mask.masked_fill_(self._tensor(hidden), float("-inf"))
        if fold > 1:
            mask = mask[:, :, None].expand(-1, -1, fold, -1).flatten(1, 2)
        return mask[:, None]

    def _tensor(self, array: Ints | Bools) -> Tensor:
        return sent(array, self.pool.device)


def _first_row(pages: Ints, page_size: int) -> int | None:
    """Returns the pool row where a session's pages begin, if they are contiguous and in order; else None."""
    if int(pages[-1] - pages[0]) != len(pages) - 1 or (pages[1:] - pages[:-1] != 1).any():
        return None
    return int(pages[0]) * page_size


def _attend(tensors: GroupTensors, rows: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
    """Attends: rows [num_chunks * num_queries, heads, key_dim] -> [num_chunks * num_queries, heads, value_dim].

    Query heads that share a key/value head are folded into the queries, so keys and values are not repeated in memory.
    """
    num_rows, num_heads, key_dim = rows.shape
    num_chunks, num_queries, num_kv_heads = tensors.group.num_chunks, tensors.group.num_queries, key.shape[1]
    if num_heads == num_kv_heads:
        query = rows.view(num_chunks, num_queries, num_heads, key_dim).transpose(1, 2)
        out = scaled_dot_product_attention(query, key, value, tensors.mask, scale=scaling)
        return out.transpose(1, 2).reshape(num_rows, num_heads, -1)
    fold = num_heads // num_kv_heads
    query = rows.view(num_chunks, num_queries, num_kv_heads, fold, key_dim).transpose(1, 2).flatten(2, 3)
    out = scaled_dot_product_attention(query, key, value, tensors.mask, scale=scaling)
    out = out.view(num_chunks, num_kv_heads, num_queries, fold, -1).transpose(1, 2)
    return out.reshape(num_rows, num_heads, -1)
