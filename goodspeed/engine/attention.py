"""Paged attention for unmodified Hugging Face models: the pool's tensors and the function registered with transformers.

A model with `goodspeed_paged` as its attention gets a `Batch` as a forward keyword; each layer writes its new keys and
values to the pool, then every group of chunks gathers its pages and attends causally. Knows nothing about sessions or
about which page belongs to whom (`pages.py`), nor how chunks are grouped (`layout.py`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from goodspeed.engine.layout import Group, Ints, Layout, Limits, plan
from goodspeed.errors import UnsupportedModelError

NAME = "goodspeed_paged"  # a name with "flash" or "/" in it would be treated specially by transformers

HARMLESS = frozenset({"position_ids", "cache_position", "use_cache", "output_attentions", "output_router_logits"})
"""Keywords that models hand to their attention though it has no use for them here."""

REASONS = {
    "softcap": "soft-capped attention scores are not computed by the kernels used here",
    "s_aux": "attention sinks are not computed by the kernels used here",
    "sinks": "attention sinks are not computed by the kernels used here",
    "position_bias": "a position bias is not added by the kernels used here",
}


@dataclass(frozen=True)
class KVShape:
    """Shape of one token's keys and values in one layer."""

    num_kv_heads: int
    key_dim: int
    value_dim: int

    @property
    def num_numbers(self) -> int:
        return self.num_kv_heads * (self.key_dim + self.value_dim)


class KVPool:
    """Key/value memory of all layers, and one scratch space that groups gather into."""

    def __init__(
        self, shape: KVShape, num_layers: int, num_pages: int, page_size: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.shape, self.page_size, self.dtype, self.device = shape, page_size, dtype, device
        size = (num_pages, page_size, shape.num_kv_heads, shape.key_dim + shape.value_dim)
        # Zeros, since masked rows still meet a probability of 0, and 0 * nan is nan; on a CPU untouched memory is free.
        self.pages = [_zeros(size, dtype, device) for _ in range(num_layers)]
        self.rows = [pages.flatten(0, 1) for pages in self.pages]  # [num_pages * page_size, kv_heads, key + value]
        self._scratch = torch.empty((0, *size[1:]), dtype=dtype, device=device)

    def write(self, layer: int, slots: Tensor, key: Tensor, value: Tensor) -> None:
        """Store new rows: key and value are [kv_heads, num_tokens, dim], slots [num_tokens]."""
        new = torch.cat((key, value), dim=-1).transpose(0, 1)  # [num_tokens, kv_heads, key + value]
        if self.dtype == torch.float16:
            new = new.nan_to_num_()  # an overflow must stay in its own session, whoever owns the page next
        self.rows[layer].index_copy_(0, slots, new)

    def scratch(self, num_pages: int) -> Tensor:
        """Space for that many pages, [num_pages, page_size, kv_heads, key + value], shared by all groups in turn."""
        if len(self._scratch) < num_pages:
            self._scratch = self._scratch.new_empty((num_pages, *self._scratch.shape[1:]))
        return self._scratch[:num_pages]


@dataclass(frozen=True)
class GroupTensors:
    """One group's indexes on the device, and views of the scratch space that its pages are gathered into."""

    group: Group
    pages: Tensor  # [num_chunks * num_pages]
    gathered: Tensor  # [num_chunks * num_pages, page_size, kv_heads, key + value]
    key: Tensor  # [num_chunks, kv_heads, num_keys, key_dim]
    value: Tensor  # [num_chunks, kv_heads, num_keys, value_dim]
    mask: Tensor  # [num_chunks, 1, num_queries * query heads per kv head, num_keys], 0 or -inf


@dataclass(frozen=True)
class PlanTensors:
    groups: list[GroupTensors]
    padded: Tensor | None  # [num_rows]
    unpadded: Tensor | None  # [num_tokens]


class Batch:
    """What one forward pass tells each layer's attention."""

    def __init__(self, pool: KVPool, layout: Layout, slots: Tensor, limits: Limits) -> None:
        self.pool, self.layout, self.slots, self.limits = pool, layout, slots, limits
        self._plans: dict[tuple[int | None, int], PlanTensors] = {}

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float | None, window: int | None
    ) -> Tensor:
        """Write key and value [kv_heads, num_tokens, dim]; query and the result are [num_tokens, num_heads, dim]."""
        self.pool.write(layer, self.slots, key, value)
        plan = self.plan(window, query.shape[1] // key.shape[0])
        rows = query if plan.padded is None else query.index_select(0, plan.padded)
        outputs = list(_attend_groups(plan, self.pool.pages[layer], rows, scaling))
        output = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
        return output if plan.unpadded is None else output.index_select(0, plan.unpadded)

    def plan(self, window: int | None, num_folded: int) -> PlanTensors:
        """Made once per forward pass for each window; num_folded query heads share a key/value head."""
        found = self._plans.get((window, num_folded))
        if found is None:
            found = self._plans[window, num_folded] = self._make(window, num_folded)
        return found

    def _make(self, window: int | None, num_folded: int) -> PlanTensors:
        made = plan(self.layout, window, self.limits)
        most = max(group.num_chunks * group.num_pages for group in made.groups)
        scratch = self.pool.scratch(most)
        groups = [self._group(group, scratch, window, num_folded) for group in made.groups]
        return PlanTensors(groups, self._optional(made.padded), self._optional(made.unpadded))

    def _group(self, group: Group, scratch: Tensor, window: int | None, num_folded: int) -> GroupTensors:
        shape, num_keys = self.pool.shape, group.num_pages * self.pool.page_size
        gathered = scratch[: group.num_chunks * group.num_pages]
        rows = gathered.view(group.num_chunks, num_keys, shape.num_kv_heads, -1).transpose(1, 2)
        return GroupTensors(
            group=group,
            pages=self._tensor(group.pages),
            gathered=gathered,
            key=rows[..., : shape.key_dim],
            value=rows[..., shape.key_dim :],
            mask=self._mask(group, num_keys, window, num_folded),
        )

    def _mask(self, group: Group, num_keys: int, window: int | None, num_folded: int) -> Tensor:
        query = self._tensor(group.query_positions - group.first_positions[:, None]).unsqueeze(-1)
        key = torch.arange(num_keys, device=self.pool.device)
        hidden = key > query  # [num_chunks, num_queries, num_keys]
        if window is not None:
            hidden |= key <= query - window
        mask = torch.zeros(hidden.shape, dtype=self.pool.dtype, device=self.pool.device)
        mask.masked_fill_(hidden, float("-inf"))
        return mask.repeat_interleave(num_folded, dim=1).unsqueeze(1) if num_folded > 1 else mask.unsqueeze(1)

    def _tensor(self, ints: Ints) -> Tensor:
        return torch.from_numpy(ints).to(self.pool.device, non_blocking=True)

    def _optional(self, ints: Ints | None) -> Tensor | None:
        return None if ints is None else self._tensor(ints)


def _attend_groups(plan: PlanTensors, pages: Tensor, rows: Tensor, scaling: float | None) -> Iterator[Tensor]:
    first = 0
    for tensors in plan.groups:
        group = tensors.group
        num_rows = group.num_chunks * group.num_queries
        query = rows[first : first + num_rows].view(group.num_chunks, group.num_queries, *rows.shape[1:])
        first += num_rows
        torch.index_select(pages, 0, tensors.pages, out=tensors.gathered)
        yield _attend_group(tensors, query, scaling).flatten(0, 1)


def _attend_group(tensors: GroupTensors, query: Tensor, scaling: float | None) -> Tensor:
    """query [chunks, queries, heads, dim] -> [chunks, queries, heads, value_dim].

    Query heads that share a key/value head are folded into the queries, so nothing is repeated in memory.
    """
    num_chunks, num_queries, num_heads, key_dim = query.shape
    num_kv_heads, fold = tensors.key.shape[1], num_heads // tensors.key.shape[1]
    if fold == 1:
        query = query.transpose(1, 2)
    else:  # [chunks, kv_heads, queries * fold, dim]
        query = query.view(num_chunks, num_queries, num_kv_heads, fold, key_dim).transpose(1, 2).flatten(2, 3)
    out = scaled_dot_product_attention(query, tensors.key, tensors.value, tensors.mask, scale=scaling)
    if fold == 1:
        return out.transpose(1, 2)
    return out.view(num_chunks, num_kv_heads, num_queries, fold, -1).transpose(1, 2).flatten(2, 3)


class Attends(Protocol):
    """What the registered function needs of the object that a forward pass carries."""

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float | None, window: int | None
    ) -> Tensor: ...


def paged_attention(
    module: Any,
    query: Tensor,  # [1, num_heads, num_tokens, key_dim]
    key: Tensor,  # [1, num_kv_heads, num_tokens, key_dim]
    value: Tensor,  # [1, num_kv_heads, num_tokens, value_dim]
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    is_causal: bool | None = None,
    goodspeed_batch: Attends | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention as transformers calls it; returns [1, num_tokens, num_heads, value_dim]."""
    if goodspeed_batch is None:
        raise RuntimeError("this model's attention is paged: call it through goodspeed.engine.runner.Runner")
    refuse_unknown(kwargs, attention_mask=attention_mask, dropout=dropout, is_causal=is_causal)
    rows = query[0].transpose(0, 1)  # [num_tokens, num_heads, key_dim]
    output = goodspeed_batch.attend(module.layer_idx, rows, key[0], value[0], scaling, sliding_window)
    return output.unsqueeze(0), None


def refuse_unknown(
    kwargs: dict[str, Any], *, attention_mask: Tensor | None, dropout: float, is_causal: bool | None
) -> None:
    """Anything that would change the result and is not computed here is refused by name."""
    if attention_mask is not None:
        raise UnsupportedModelError("attention_mask: the model makes a mask of its own, which paged attention ignores")
    if dropout:
        raise UnsupportedModelError("dropout: the model is in training mode; call model.eval()")
    if is_causal is False:
        raise UnsupportedModelError("is_causal=False: bidirectional attention cannot be cached")
    for name, value in kwargs.items():
        if value is not None and name not in HARMLESS:
            reason = REASONS.get(name, "an attention argument that paged attention does not know may change the result")
            raise UnsupportedModelError(f"{name}: {reason}; use a model without it")


def _zeros(size: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    if device.type != "cpu":
        return torch.zeros(size, dtype=dtype, device=device)
    num_bytes = torch.Size(size).numel() * dtype.itemsize
    return torch.from_numpy(np.zeros(num_bytes, np.uint8)).view(dtype).view(size)


AttentionInterface.register(NAME, paged_attention)
