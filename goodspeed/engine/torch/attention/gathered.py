"""Attention of one forward pass over the KV cache: writes new keys and values, then gathers and attends by group.

Indexes, masks and views of the scratch space are built once per pass, for all layers.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from goodspeed.engine.torch.attention.layout import Group, GroupLimits, Layout, Plan, plan
from goodspeed.engine.torch.attention.trees import Bools, Ints
from goodspeed.engine.torch.kv_cache import KVPool, sent


@dataclass(frozen=True)
class GroupTensors:
    """The index tensors of one group, on the device, and its part of the scratch space with two views of it."""

    group: Group
    pages: Tensor  # [num_chunks * num_pages] to gather
    space: Tensor  # [num_chunks * num_pages, page_size, kv_heads, key + value]
    key: Tensor  # [num_chunks, kv_heads, num_keys, key_dim]
    value: Tensor  # [num_chunks, kv_heads, num_keys, value_dim]
    mask: Tensor  # [num_chunks, 1, num_queries * query heads per kv head, num_keys], 0 or -inf


@dataclass(frozen=True)
class PlanTensors:
    groups: list[GroupTensors]
    padded: Tensor | None = None  # [num_rows] token of each padded query row; None: no padding
    unpadded: Tensor | None = None  # [num_tokens] row of each token


class Batch:
    """The state of one forward pass that each layer's attention uses (`interface.Attends`)."""

    def __init__(self, pool: KVPool, layout: Layout, slots: Tensor, limits: GroupLimits) -> None:
        self.pool, self.layout, self.slots, self.limits = pool, layout, slots, limits
        self._plans: dict[tuple[int | None, int], PlanTensors] = {}

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
            torch.index_select(self.pool.pages[layer], 0, group.pages, out=group.space)
            outputs.append(_attend(group, rows[first:last], scaling))
            first = last
        output = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
        return output if plan.unpadded is None else output.index_select(0, plan.unpadded)

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
        space = self.pool.scratch(len(pages))
        views = self.pool.split(space, group.num_chunks)
        return GroupTensors(group, self._tensor(pages), space, *views, self._make_mask(made, group, window, fold))

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


def _attend(tensors: GroupTensors, rows: Tensor, scaling: float | None) -> Tensor:
    """Attends: rows [num_chunks * num_queries, heads, key_dim] -> [num_chunks * num_queries, heads, value_dim].

    Query heads that share a key/value head are folded into the queries, so keys and values are not repeated in memory.
    """
    (num_rows, num_heads, key_dim), key, value = rows.shape, tensors.key, tensors.value
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
