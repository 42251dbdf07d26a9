"""Llama's forward pass in few operations: one matrix for queries, keys and values, one for gate and up.

Small operations take most of a small model's pass, and on a GPU a good part of a large one's. Llama, Mistral, Qwen2 and
Qwen3 share one architecture. `Fused` takes over the layers of an unmodified transformers model; `trial.py` compares its
logits with that model's own. Other models run unchanged.
"""

from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from goodspeed.engine.model_files.config_checks import expected_windows
from goodspeed.engine.torch.attention.interface import Attends
from goodspeed.engine.torch.prepacked_linear import Product, product

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
"""Architectures of this kind: RMSNorm, rotary queries and keys, a gated MLP with SiLU."""

RELEASED = 8
"""Layers after which a GPU gets back the memory of their own weights."""


def can_fuse(model: Any) -> bool:
    """True for a model of one of the families without foreign modules or replaced forward methods."""
    family = model.config.model_type
    if family not in FAMILIES or model.config.hidden_act != "silu":
        return False
    own = (f"transformers.models.{family}.", "transformers.activations", "torch.nn.modules.")
    return all(type(one).__module__.startswith(own) and "forward" not in vars(one) for one in model.modules())


class Fused(nn.Module):
    """A model of Llama's architecture, called like a transformers model."""

    def __init__(self, model: Any) -> None:
        """Takes over the layers of `model` one by one; `model` is unusable afterwards."""
        super().__init__()
        self.config, self.dtype = model.config, model.dtype
        self.embed, self.angles = model.model.embed_tokens, Angles(model.model.rotary_emb)
        self.norm = Norm.of(model.model.norm)
        windows = expected_windows(model.config.get_text_config(decoder=True))
        self.layers: list[Layer] = []
        for number, window in enumerate(windows):
            self.layers.append(Layer(number, model.model.layers[number], window))
            model.model.layers[number] = nn.Identity()
            if number % RELEASED == 0:
                _release(self.embed.weight.device)
        self.head = model.lm_head
        self.out = product(self.head, is_shared=self.head.weight is self.embed.weight)
        _release(self.embed.weight.device)

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
        cos, sin = self.angles.at(position_ids[0], rows)
        for layer in self.layers:
            rows = layer(rows, cos, sin, goodspeed_batch)
        if isinstance(logits_to_keep, Tensor):
            rows = rows[logits_to_keep]
        return SimpleNamespace(logits=self.out(self.norm.of_rows(rows))[None])


class Angles:
    """Cosines and sines of rotary positions, as the model's own module computes them, which takes three times as long.

    The sines for the second half of a head have the opposite sign (`_rotate`).
    """

    def __init__(self, rotary: Any) -> None:
        self._frequencies, self._scaling = rotary.inv_freq.float(), rotary.attention_scaling

    def at(self, positions: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Returns both [num_tokens, 1, head_dim], in the dtype of the rows."""
        angles = torch.outer(positions.float(), self._frequencies)
        cos, sin = ((one * self._scaling).to(rows.dtype) for one in (angles.cos(), angles.sin()))
        return torch.cat((cos, cos), dim=-1)[:, None], torch.cat((-sin, sin), dim=-1)[:, None]


class Norm(NamedTuple):
    """RMSNorm."""

    weight: Tensor
    eps: float

    @classmethod
    def of(cls, norm: Any) -> "Norm":
        return cls(norm.weight, norm.variance_epsilon)

    def of_rows(self, rows: Tensor) -> Tensor:
        return torch.rms_norm(rows, (rows.shape[-1],), self.weight, self.eps)


class Layer:
    """One layer of `Fused`; no module, since looking up a module's parts takes longer than some operations."""

    def __init__(self, number: int, layer: Any, window: int | None) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self.number, self.window = number, window
        self.scaling: float = attention.scaling
        self.head_dim: int = attention.head_dim
        self.num_heads = attention.q_proj.out_features // self.head_dim
        self.num_rotated = self.num_heads + attention.k_proj.out_features // self.head_dim
        self.norm, self.mlp_norm = Norm.of(layer.input_layernorm), Norm.of(layer.post_attention_layernorm)
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

    def __call__(self, rows: Tensor, cos: Tensor, sin: Tensor, batch: Attends) -> Tensor:
        """rows, and the result: [num_tokens, hidden]; cos, sin: [num_tokens, 1, head_dim]."""
        heads = self.qkv(self.norm.of_rows(rows)).view(len(rows), -1, self.head_dim)
        rotated = heads[:, : self.num_rotated]
        if self.head_norm is not None:
            rotated = functional.rms_norm(rotated, (self.head_dim,), None, self.eps) * self.head_norm
        rotated = _rotate(rotated, cos, sin)
        query, key, value = rotated[:, : self.num_heads], rotated[:, self.num_heads :], heads[:, self.num_rotated :]
        seen = batch.attend(self.number, query, key.transpose(0, 1), value.transpose(0, 1), self.scaling, self.window)
        rows = rows + self.out(seen.reshape(len(rows), -1))
        gate, up = self.gate_up(self.mlp_norm.of_rows(rows)).chunk(2, dim=-1)
        return rows + self.down(functional.silu(gate) * up)


def _release(device: torch.device) -> None:
    """Returns cached memory to a GPU: the KV cache, or another process, gets it."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


def _join(*layers: nn.Linear) -> Product:
    """Joins linear layers with the same input into one, prepacked where that is faster."""
    joined = nn.Linear(layers[0].in_features, sum(one.out_features for one in layers), device="meta")
    joined.weight = nn.Parameter(torch.cat([one.weight for one in layers]), requires_grad=False)
    biases = [one.weight.new_zeros(one.out_features) if one.bias is None else one.bias.detach() for one in layers]
    has_bias = any(one.bias is not None for one in layers)
    joined.register_parameter("bias", nn.Parameter(torch.cat(biases), requires_grad=False) if has_bias else None)
    return product(joined)


def _rotate(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates heads [num_tokens, num_heads, head_dim] by their positions' `Angles` (RoPE)."""
    return (heads * cos).add_(heads.roll(heads.shape[-1] // 2, -1).mul_(sin))
