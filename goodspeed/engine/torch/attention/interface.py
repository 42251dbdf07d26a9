"""The attention function that unmodified Hugging Face models call, and the arguments that it refuses.

A model with `goodspeed_paged` as its attention gets an `Attends` object (`gathered.Batch`) as a forward keyword, and
passes it to every layer.
"""

from typing import Any, Protocol

from torch import Tensor
from transformers import AttentionInterface

from goodspeed.errors import UnsupportedModelError

NAME = "goodspeed_paged"  # a name with "flash" or "/" in it would be treated specially by transformers

HARMLESS = frozenset({"position_ids", "cache_position", "use_cache", "output_attentions", "output_router_logits"})
"""Keywords of a model's attention call that do not change its result here."""

REASONS = {
    "softcap": "soft-capped attention scores are not supported",
    "s_aux": "attention sinks are not supported",
    "sinks": "attention sinks are not supported",
    "position_bias": "a position bias is not supported",
}


class Attends(Protocol):
    """Interface of the object that a forward pass hands to every layer.

    attend: query [num_tokens, num_heads, key_dim], key and value [num_kv_heads, num_tokens, dim] of the new tokens;
    returns [num_tokens, num_heads, value_dim]. window: in tokens, the query included; None: all earlier tokens.
    """

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float | None, window: int | None
    ) -> Tensor: ...


class NothingHandedOn(RuntimeError):
    """A layer's attention was called without an `Attends` object."""


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
    """Computes attention as transformers calls it; returns [1, num_tokens, num_heads, value_dim]."""
    if goodspeed_batch is None:
        raise NothingHandedOn("this model's attention is paged: call it through goodspeed.engine.engines.start")
    refuse_unknown(kwargs, attention_mask=attention_mask, dropout=dropout, is_causal=is_causal)
    rows = query[0].transpose(0, 1)  # [num_tokens, num_heads, key_dim]
    output = goodspeed_batch.attend(module.layer_idx, rows, key[0], value[0], scaling, sliding_window)
    return output.unsqueeze(0), None


def refuse_unknown(
    kwargs: dict[str, Any], *, attention_mask: Tensor | None, dropout: float, is_causal: bool | None
) -> None:
    """Raises UnsupportedModelError for an argument that would change the result but is not supported here."""
    if attention_mask is not None:
        raise UnsupportedModelError(
            "attention_mask: the model makes a mask of its own, which paged attention ignores; use another model"
        )
    if dropout:
        raise UnsupportedModelError("dropout: the model is in training mode; call model.eval()")
    if is_causal is False:
        raise UnsupportedModelError("is_causal=False: bidirectional attention cannot be cached; use another model")
    for name, value in kwargs.items():
        if value is not None and name not in HARMLESS:
            reason = REASONS.get(name, "an attention argument that the engine does not know may change the result")
            raise UnsupportedModelError(f"{name}: {reason}; use a model without it")


AttentionInterface.register(NAME, paged_attention)
