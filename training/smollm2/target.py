"""Computes the target in bfloat16: on a CPU that has bfloat16, many answers at once take a third of the time of its
4-bit weights."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional
from transformers import AutoModelForCausalLM

BLOCK = 128
"""Tokens of the vocabulary that are compared at once to find the likeliest."""


@dataclass(frozen=True)
class Layer:
    """Weights of a layer; matrices with the same input are joined."""

    attention_norm: Tensor  # [hidden]
    qkv: Tensor  # [(heads + 2 * key_heads) * head, hidden]
    output: Tensor  # [hidden, heads * head]
    mlp_norm: Tensor  # [hidden]
    gate_up: Tensor  # [2 * inner, hidden]
    down: Tensor  # [hidden, inner]


class Target:
    """A Llama, without its texts."""

    def __init__(self, file: Path) -> None:
        """file: in GGUF; transformers dequantises it."""
        model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32).bfloat16()
        config = model.config
        self.heads, self.key_heads = config.num_attention_heads, config.num_key_value_heads
        self.head, self.epsilon = config.hidden_size // config.num_attention_heads, config.rms_norm_eps
        self.embedding, self.norm = model.model.embed_tokens.weight.detach(), model.model.norm.weight.detach()
        self.output = model.lm_head.weight.detach()
        if len(self.output) > 1 << 16:
            raise SystemExit(f"{file.name} has {len(self.output)} tokens; answers are stored with ids of 16 bits")
        self.layers = [_layer(layer) for layer in model.model.layers]
        self.frequencies = config.rope_parameters["rope_theta"] ** -(torch.arange(0, self.head, 2) / self.head)

    def normed(self, hidden: Tensor, weight: Tensor) -> Tensor:
        return functional.rms_norm(hidden, weight.shape, weight, self.epsilon)


class Batch:
    """Texts that are written together, with their KV cache. Prompts are padded on the left to one length."""

    def __init__(self, target: Target, prompts: list[list[int]], room: int) -> None:
        """room: tokens of the longest answer."""
        longest = max(map(len, prompts))
        self._target, self._length = target, 0
        self._pads = torch.tensor([longest - len(prompt) for prompt in prompts])
        self._prompts = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in prompts])
        shape = (len(prompts), target.key_heads, longest + room, target.head)
        empty = [torch.empty(shape, dtype=torch.bfloat16) for _ in range(2 * len(target.layers))]
        self._caches = list(zip(empty[0::2], empty[1::2], strict=True))

    @torch.inference_mode()
    def prefill(self) -> Tensor:
        """Returns the logits [num_texts, vocab] after the prompts, in float32."""
        return self._forward(self._prompts)

    @torch.inference_mode()
    def step(self, tokens: Tensor) -> Tensor:
        """Returns the logits [num_texts, vocab] after one more token [num_texts] of each text."""
        return self._forward(tokens.unsqueeze(1))

    @torch.inference_mode()
    def keep(self, texts: Tensor) -> None:
        """Goes on with some of the texts, or with one several times."""
        self._pads = self._pads[texts]
        self._caches = [(keys[texts], values[texts]) for keys, values in self._caches]

    def _forward(self, ids: Tensor) -> Tensor:
        target, (num_texts, count) = self._target, ids.shape
        start, self._length = self._length, self._length + ids.shape[1]
        places = (torch.arange(start, self._length) - self._pads.unsqueeze(1)).clamp(min=0)
        angles = places.unsqueeze(-1) * target.frequencies
        turn = [torch.cat((each, each), -1).unsqueeze(1).bfloat16() for each in (angles.cos(), angles.sin())]
        seen = torch.arange(self._length) >= self._pads.unsqueeze(1)  # [num_texts, length]
        hidden = target.embedding[ids]
        for layer, cache in zip(target.layers, self._caches, strict=True):
            rows = functional.linear(target.normed(hidden, layer.attention_norm), layer.qkv)
            split = rows.view(num_texts, count, -1, target.head).transpose(1, 2)
            query, key, value = torch.split(split, [target.heads, target.key_heads, target.key_heads], 1)
            query, key = (_rotated(each, *turn) for each in (query, key))
            for stored, new in zip(cache, (key, value), strict=True):
                stored[:, :, start : self._length] = new
            found = self._attend_all(query, cache, seen) if count > 1 else self._attend_one(query, cache, seen)
            hidden = hidden + functional.linear(found.transpose(1, 2).reshape(num_texts, count, -1), layer.output)
            gate, up = functional.linear(target.normed(hidden, layer.mlp_norm), layer.gate_up).chunk(2, -1)
            hidden = hidden + functional.linear(functional.silu(gate) * up, layer.down)
        return functional.linear(target.normed(hidden[:, -1], target.norm), target.output).float()

    def _attend_all(self, query: Tensor, cache: tuple[Tensor, Tensor], seen: Tensor) -> Tensor:
        count, end = query.shape[2], self._length
        mask = seen[:, None, None] & torch.ones(count, end, dtype=torch.bool).tril(end - count)
        mask = mask | torch.eye(count, end, dtype=torch.bool)  # a row that sees nothing would be no number
        group = self._target.heads // self._target.key_heads
        keys, values = (stored[:, :, :end].repeat_interleave(group, 1) for stored in cache)
        return functional.scaled_dot_product_attention(query, keys, values, attn_mask=mask)

    def _attend_one(self, query: Tensor, cache: tuple[Tensor, Tensor], seen: Tensor) -> Tensor:
        """Attends from one token of each text; two products are quicker than the function for many."""
        target, num_texts = self._target, len(query)
        group = target.heads // target.key_heads
        keys, values = (stored.flatten(0, 1)[:, : self._length] for stored in cache)
        least = torch.zeros(seen.shape).masked_fill(~seen, -torch.inf).repeat_interleave(target.key_heads, 0)
        grouped = query.reshape(num_texts * target.key_heads, group, target.head) * target.head**-0.5
        scores = torch.bmm(grouped, keys.transpose(1, 2)).float() + least.unsqueeze(1)
        return torch.bmm(scores.softmax(-1).bfloat16(), values).view(num_texts, target.heads, 1, target.head)


def likeliest(logits: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """Returns `logits.topk(number)` of logits [rows, vocab], from the blocks with the largest maxima: they have all."""
    num_blocks = logits.shape[-1] // BLOCK
    if num_blocks * BLOCK < logits.shape[-1] or num_blocks < number:
        found = logits.topk(number)
        return found.values, found.indices
    blocks = logits.view(len(logits), num_blocks, BLOCK)
    places = blocks.amax(-1).topk(number).indices
    few = blocks.gather(1, places.unsqueeze(-1).expand(-1, -1, BLOCK)).flatten(1).topk(number)
    return few.values, places.gather(1, few.indices // BLOCK) * BLOCK + few.indices % BLOCK


def _layer(layer: torch.nn.Module) -> Layer:
    weights = {name: weight.detach() for name, weight in layer.named_parameters()}
    joined = [
        torch.cat([weights[f"{part}_proj.weight"] for part in parts])
        for parts in (("self_attn.q", "self_attn.k", "self_attn.v"), ("mlp.gate", "mlp.up"))
    ]
    norms = weights["input_layernorm.weight"], weights["post_attention_layernorm.weight"]
    output, down = weights["self_attn.o_proj.weight"], weights["mlp.down_proj.weight"]
    return Layer(norms[0], joined[0], output, norms[1], joined[1], down)


def _rotated(features: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = features.chunk(2, -1)
    return features * cos + torch.cat((-second, first), -1) * sin
