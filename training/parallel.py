"""Fine-tunes an ordinary draft model to draft several tokens in one forward pass (PARD, arXiv 2504.18583).

After a text's position n come masks: the first predicts token n + 2, the next n + 3, and so on. A forward pass trains
the masks of many positions at once: all rows of masks lie behind the text, and an attention mask shows each of them the
text up to its own n and the masks before it. Of the deeper masks a random part is left out ("conditional drop", COD).
The labels are the target's own probabilities of the token at that place, which are those that texts give on average.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional
from transformers import LlamaForCausalLM

KEPT = 0.7  # of the masks of one depth, the share that has a mask behind it
LEAST_KEPT = 0.2


@dataclass
class Masks:
    """The masks behind a row of text: of each, the position n of the text that it follows, and its depth from 1 on."""

    after: Tensor  # [num_masks]
    depth: Tensor  # [num_masks]

    @classmethod
    def drawn(cls, length: int, num_parallel: int, rng: torch.Generator) -> "Masks":
        """A random number of masks behind each position of a text, so many that their labels lie in the text."""
        depths = torch.arange(1, num_parallel)
        kept = torch.tensor([max(KEPT**depth, LEAST_KEPT) for depth in range(num_parallel - 1)])
        deepest = (torch.rand(length, 1, generator=rng) < kept).sum(-1)  # [length]
        deepest = torch.minimum(deepest, length - 1 - torch.arange(length))
        after, index = torch.nonzero(depths <= deepest[:, None], as_tuple=True)
        return cls(after, depths[index])

    @property
    def positions(self) -> Tensor:
        return self.after + self.depth

    def attention(self, length: int) -> Tensor:
        """Returns the attention mask [1, 1, length + num_masks, length + num_masks]; text sees the text before it."""
        text = torch.arange(length)
        sees_text = torch.cat([text, self.after])[:, None] >= text
        chain = torch.cat([torch.full_like(text, -1), self.after])
        depth = torch.cat([torch.zeros_like(text), self.depth])
        sees_masks = (chain[:, None] == self.after) & (depth[:, None] >= self.depth)
        return torch.cat([sees_text, sees_masks], dim=1)[None, None]


def predicted(model: LlamaForCausalLM, text: Tensor, masks: Masks) -> Tensor:
    """Logits [rows, length + num_masks, vocab] of text [rows, length] and masks; the mask's own id is no token."""
    rows, length = text.shape
    mask_id = model.config.pard_token
    inputs = torch.cat([text, text.new_full((rows, len(masks.after)), mask_id)], dim=1)
    positions = torch.cat([torch.arange(length), masks.positions]).expand(rows, -1)
    seen = masks.attention(length).expand(rows, -1, -1, -1)
    output: Tensor = model(
        input_ids=inputs, position_ids=positions.to(text.device), attention_mask=seen.to(text.device), use_cache=False
    ).logits
    return output[..., :mask_id].float()


def loss(model: LlamaForCausalLM, text: Tensor, wanted: Tensor, masks: Masks) -> Tensor:
    """Cross entropy at the text and at the masks, both means added.

    wanted [rows, length, vocab]: the target's probabilities of the token after each position of the text.
    """
    length = text.shape[1]
    with torch.autocast(text.device.type, dtype=torch.bfloat16):
        given = predicted(model, text, masks)
    at_text = functional.cross_entropy(given[:, :length].flatten(0, 1), wanted.flatten(0, 1))
    at_masks = functional.cross_entropy(given[:, length:].flatten(0, 1), wanted[:, masks.positions].flatten(0, 1))
    return at_text + at_masks
