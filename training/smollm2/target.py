"""Computes the target in bfloat16: on a CPU that has bfloat16, many answers at once take less than half of the time of
its 4-bit weights."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, DynamicCache

BLOCK = 128
"""Tokens of the vocabulary that are compared at once to find the likeliest."""


class Target:
    """A model, without its texts."""

    def __init__(self, file: Path) -> None:
        """file: in GGUF; transformers dequantises it."""
        model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
        self.model: Any = model.bfloat16().eval()
        if model.config.vocab_size > 1 << 16:
            raise SystemExit(
                f"{file.name} has {model.config.vocab_size} tokens; answers are stored with ids of 16 bits"
            )


class Batch:
    """Texts that are written together, with their KV cache. Prompts are padded on the left to one length."""

    def __init__(self, target: Target, prompts: list[list[int]]) -> None:
        longest = max(map(len, prompts))
        pads = [longest - len(prompt) for prompt in prompts]
        self._target, self._cache = target, DynamicCache()
        self._prompts = torch.tensor([[0] * pad + prompt for pad, prompt in zip(pads, prompts, strict=True)])
        self._mask = torch.tensor([[0] * pad + [1] * (longest - pad) for pad in pads])  # [num_texts, length]

    def prefill(self) -> Tensor:
        """Returns the logits [num_texts, vocab] after the prompts, in float32."""
        return self._forward(self._prompts)

    def step(self, tokens: Tensor) -> Tensor:
        """Returns the logits [num_texts, vocab] after one more token [num_texts] of each text."""
        self._mask = torch.nn.functional.pad(self._mask, (0, 1), value=1)
        return self._forward(tokens.unsqueeze(1))

    @torch.inference_mode()
    def keep(self, texts: Tensor) -> None:
        """Goes on with some of the texts, or with one several times."""
        self._mask = self._mask[texts]
        self._cache.batch_select_indices(texts)

    @torch.inference_mode()
    def _forward(self, ids: Tensor) -> Tensor:
        places = (self._mask.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        how = {"attention_mask": self._mask, "position_ids": places, "past_key_values": self._cache}
        found: Tensor = self._target.model(input_ids=ids, use_cache=True, logits_to_keep=1, **how).logits[:, -1]
        return found.float()


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
