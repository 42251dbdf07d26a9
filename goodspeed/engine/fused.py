"""Llama's forward pass in few operations: one matrix for queries, keys and values, one for gate and up.

Small operations take most of a small model's pass. Llama, Mistral, Qwen2 and Qwen3 share one architecture. `Fused`
takes over the layers of an unmodified transformers model; `trial.py` compares its logits with that model's own. Other
models run unchanged.
"""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from goodspeed.engine.linear import prepack
from goodspeed.engine.paged.attention import Attends
from goodspeed.engine.support import expected_windows

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
"""Architectures of this kind: RMSNorm, rotary queries and keys, a gated MLP with SiLU."""

BLOCK_ROWS = 32
"""Most rows for which a row's bfloat16 product is bit-identical among any other rows (measured with 15 shapes). With
more rows oneDNN sums in another order, so more rows are multiplied block by block."""


def can_fuse(model: Any) -> bool:
    """True for a CPU model of one of the families without foreign modules or replaced forward methods."""
    family = model.config.model_type
    if family not in FAMILIES or model.config.hidden_act != "silu" or next(model.parameters()).device.type != "cpu":
        return False
    own = (f"transformers.models.{family}.", "transformers.activations", "torch.nn.modules.")
    return all(type(one).__module__.startswith(own) and "forward" not in vars(one) for one in model.modules())


class Fused(nn.Module):
    """A model of Llama's architecture, called like a transformers model."""

    def __init__(self, model: Any) -> None:
        """Takes over the layers of `model` one by one; `model` is unusable afterwards."""
        super().__init__()
        self.config, self.dtype = model.config, model.dtype
        self.embed, self.angles, self.norm = model.model.embed_tokens, model.model.rotary_emb, model.model.norm
        windows = expected_windows(model.config.get_text_config(decoder=True))
        self.layers = nn.ModuleList()
        for number, window in enumerate(windows):
            self.layers.append(Layer(number, model.model.layers[number], window))
            model.model.layers[number] = nn.Identity()
        self.head = model.lm_head
        prepack(self.head, shared=self.head.weight is self.embed.weight)

    def forward(
        self,
        input_ids: Tensor,  # [1, num_tokens]
        position_ids: Tensor,  # [1, num_tokens]
        goodspeed_batch: Attends,
        logits_to_keep: int | Tensor = 0,
        use_cache: bool = False,
    ) -> SimpleNamespace:
        """Returns `logits` [1, num_wanted, vocab_size] for the rows `logits_to_keep`; 0: for all rows."""
        rows = self.embed(input_ids[0])
        cos, sin = (angles[0, :, None] for angles in self.angles(rows[None], position_ids))
        for layer in self.layers:
            rows = layer(rows, cos, sin, goodspeed_batch)
        if isinstance(logits_to_keep, Tensor):
            rows = rows[logits_to_keep]
        return SimpleNamespace(logits=_multiply(self.head, _norm(rows, self.norm))[None])


class Layer(nn.Module):
    """One layer of `Fused`."""

    def __init__(self, number: int, layer: Any, window: int | None) -> None:
        super().__init__()
        attention, mlp = layer.self_attn, layer.mlp
        self.number, self.window = number, window
        self.scaling: float = attention.scaling
        self.head_dim: int = attention.head_dim
        self.num_heads = attention.q_proj.out_features // self.head_dim
        self.num_rotated = self.num_heads + attention.k_proj.out_features // self.head_dim
        self.norms = nn.ModuleList((layer.input_layernorm, layer.post_attention_layernorm))
        self.qkv = _join(attention.q_proj, attention.k_proj, attention.v_proj)
        self.out = _join(attention.o_proj)
        self.gate_up = _join(mlp.gate_proj, mlp.up_proj)
        self.down = _join(mlp.down_proj)
        query_norm, key_norm = getattr(attention, "q_norm", None), getattr(attention, "k_norm", None)
        self.head_norm: Tensor | None = None  # [query and key heads, head_dim]
        if query_norm is not None and key_norm is not None:
            self.eps: float = query_norm.variance_epsilon
            num_keys = self.num_rotated - self.num_heads
            self.head_norm = torch.cat(
                (query_norm.weight.expand(self.num_heads, -1), key_norm.weight.expand(num_keys, -1))
            )

    def forward(self, rows: Tensor, cos: Tensor, sin: Tensor, batch: Attends) -> Tensor:
        """rows, and the result: [num_tokens, hidden]; cos, sin: [num_tokens, 1, head_dim]."""
        heads = _multiply(self.qkv, _norm(rows, self.norms[0])).view(len(rows), -1, self.head_dim)
        rotated = heads[:, : self.num_rotated]
        if self.head_norm is not None:
            rotated = functional.rms_norm(rotated, (self.head_dim,), None, self.eps) * self.head_norm
        rotated = _rotate(rotated, cos, sin)
        query, key, value = rotated[:, : self.num_heads], rotated[:, self.num_heads :], heads[:, self.num_rotated :]
        seen = batch.attend(self.number, query, key.transpose(0, 1), value.transpose(0, 1), self.scaling, self.window)
        rows = rows + _multiply(self.out, seen.reshape(len(rows), -1))
        gate, up = _multiply(self.gate_up, _norm(rows, self.norms[1])).chunk(2, dim=-1)
        return rows + _multiply(self.down, functional.silu(gate) * up)


def _join(*layers: nn.Linear) -> nn.Linear:
    """Joins linear layers with the same input into one, prepacked where that is faster."""
    joined = nn.Linear(layers[0].in_features, sum(one.out_features for one in layers), device="meta")
    joined.weight = nn.Parameter(torch.cat([one.weight for one in layers]), requires_grad=False)
    biases = [one.weight.new_zeros(one.out_features) if one.bias is None else one.bias.detach() for one in layers]
    has_bias = any(one.bias is not None for one in layers)
    joined.register_parameter("bias", nn.Parameter(torch.cat(biases), requires_grad=False) if has_bias else None)
    prepack(joined)
    return joined


def _multiply(layer: nn.Module, rows: Tensor) -> Tensor:
    """rows [num_tokens, inputs] -> [num_tokens, outputs]; in bfloat16 each row's result is the same in any batch."""
    if rows.dtype != torch.bfloat16 or len(rows) <= BLOCK_ROWS:
        out: Tensor = layer(rows)
        return out
    return torch.cat([layer(block) for block in torch.split(rows, BLOCK_ROWS)])


def _norm(rows: Tensor, norm: Any) -> Tensor:
    return functional.rms_norm(rows, (rows.shape[-1],), norm.weight, norm.variance_epsilon)


def _rotate(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates heads [num_tokens, num_heads, head_dim] by their positions' angles (RoPE)."""
    first, second = heads.chunk(2, dim=-1)
    return heads * cos + torch.cat((-second, first), dim=-1) * sin
