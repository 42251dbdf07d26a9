"""Attention of one forward pass over the paged memory: write the new keys and values, gather, attend, group by group.

What every layer shares (indexes, masks, views of the scratch space) is made once per pass. Knows nothing about models,
nor about which page belongs to whom (`pages.py`) or how chunks are grouped (`layout.py`).
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from goodspeed.engine.layout import Group, Ints, Layout, Limits, plan
from goodspeed.engine.memory import KVPool


@dataclass(slots=True)
class GroupTensors:
    """One group's indexes on the device, and the part of the scratch space that its pages are gathered into."""

    group: Group
    pages: Tensor  # [num_chunks * num_pages]
    run: slice | None  # the pages, where one session's lie side by side and need no gathering
    gathered: Tensor  # [num_chunks * num_pages, page_size, kv_heads, key + value]
    key: Tensor  # [num_chunks, kv_heads, num_keys, key_dim], a view of gathered
    value: Tensor  # [num_chunks, kv_heads, num_keys, value_dim], a view of gathered
    mask: Tensor  # [num_chunks, 1, num_queries * query heads per kv head, num_keys], 0 or -inf


@dataclass(slots=True)
class PlanTensors:
    groups: list[GroupTensors]
    padded: Tensor | None  # [num_rows]
    unpadded: Tensor | None  # [num_tokens]


class Batch:
    """What one forward pass tells each layer's attention (`attention.Attends`)."""

    def __init__(self, pool: KVPool, layout: Layout, slots: Tensor, limits: Limits) -> None:
        self.pool, self.layout, self.slots, self.limits = pool, layout, slots, limits
        self._plans: dict[tuple[int | None, int], PlanTensors] = {}

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float | None, window: int | None
    ) -> Tensor:
        """Write key and value [kv_heads, num_tokens, dim]; query and the result are [num_tokens, num_heads, dim]."""
        self.pool.write(layer, self.slots, key, value)
        plan = self._plan(window, query.shape[1] // key.shape[0])
        rows = query if plan.padded is None else query.index_select(0, plan.padded)
        pages, outputs, first = self.pool.pages[layer], [], 0
        for group in plan.groups:
            last = first + group.group.num_chunks * group.group.num_queries
            if group.run is None:
                key, value = group.key, group.value
                torch.index_select(pages, 0, group.pages, out=group.gathered)
            else:
                key, value = self._views(pages[group.run], 1)
            outputs.append(_attend(rows[first:last], key, value, group, scaling))
            first = last
        output = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
        return output if plan.unpadded is None else output.index_select(0, plan.unpadded)

    def _plan(self, window: int | None, fold: int) -> PlanTensors:
        """Made once for each window; so many (fold) query heads share a key/value head."""
        found = self._plans.get((window, fold))
        if found is None:
            found = self._plans[window, fold] = self._make_plan(window, fold)
        return found

    def _make_plan(self, window: int | None, fold: int) -> PlanTensors:
        made = plan(self.layout, window, self.limits)
        scratch = self.pool.scratch(max(len(group.pages) for group in made.groups))
        groups = [self._make_group(group, scratch, window, fold) for group in made.groups]
        padded, unpadded = (None if ints is None else self._tensor(ints) for ints in (made.padded, made.unpadded))
        return PlanTensors(groups, padded, unpadded)

    def _make_group(self, group: Group, scratch: Tensor, window: int | None, fold: int) -> GroupTensors:
        gathered = scratch[: len(group.pages)]
        key, value = self._views(gathered, group.num_chunks)
        mask = self._make_mask(group, key.shape[2], window, fold)
        return GroupTensors(group, self._tensor(group.pages), _run(group), gathered, key, value, mask)

    def _views(self, pages: Tensor, num_chunks: int) -> tuple[Tensor, Tensor]:
        """Keys and values [num_chunks, kv_heads, num_keys, dim] of [num_chunks * num_pages, page_size, ...] pages."""
        shape = self.pool.shape
        rows = pages.view(num_chunks, -1, shape.num_kv_heads, shape.key_dim + shape.value_dim).transpose(1, 2)
        return rows[..., : shape.key_dim], rows[..., shape.key_dim :]

    def _make_mask(self, group: Group, num_keys: int, window: int | None, fold: int) -> Tensor:
        query = self._tensor(group.query_positions)[:, :, None]  # counted from the first gathered key
        key = torch.arange(num_keys, device=self.pool.device)
        hidden = key > query  # [num_chunks, num_queries, num_keys]
        if window is not None:
            hidden |= key <= query - window
        mask = torch.zeros(hidden.shape, dtype=self.pool.dtype, device=self.pool.device)
        mask.masked_fill_(hidden, float("-inf"))
        if fold > 1:
            mask = mask[:, :, None].expand(-1, -1, fold, -1).flatten(1, 2)
        return mask[:, None]

    def _tensor(self, ints: Ints) -> Tensor:
        found = torch.from_numpy(ints)
        return found if self.pool.device.type == "cpu" else found.to(self.pool.device, non_blocking=True)


def _run(group: Group) -> slice | None:
    first, num_pages = int(group.pages[0]), len(group.pages)
    alone = group.num_chunks == 1 and int(group.pages[-1]) - first == num_pages - 1
    if alone and bool((group.pages[1:] > group.pages[:-1]).all()):
        return slice(first, first + num_pages)
    return None


def _attend(rows: Tensor, key: Tensor, value: Tensor, tensors: GroupTensors, scaling: float | None) -> Tensor:
    """Rows [num_chunks * num_queries, heads, key_dim] -> [num_chunks * num_queries, heads, value_dim].

    Query heads that share a key/value head are folded into the queries, so nothing is repeated in memory.
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
