"""Updates weights: Muon for the matrices of the hidden layers, AdamW for the rest, warm-up, stable, decay."""

from dataclasses import dataclass

import torch
from torch import nn

# For steps of about 2,000 tokens. Nearly three times as much was tried first: the loss of the stable phase then hardly
# fell, and a quarter nat of it went with the decay alone.
MUON_LR, ADAM_LR = 0.007, 0.0012


class Optimizer:
    """Both optimisers as one."""

    def __init__(self, model: nn.Module) -> None:
        named = dict(model.named_parameters())
        is_matrix = {name: p.ndim == 2 and "embed" not in name for name, p in named.items()}
        self.muon = torch.optim.Muon([p for n, p in named.items() if is_matrix[n]], lr=MUON_LR, weight_decay=0.01)
        rest = [p for n, p in named.items() if not is_matrix[n]]
        self.adam = torch.optim.AdamW(rest, lr=ADAM_LR, betas=(0.9, 0.98), weight_decay=0.0)

    def step(self, scale: float) -> None:
        """Updates the weights once, with the learning rates times `scale`, and clears the gradients."""
        for optimizer, rate in zip((self.muon, self.adam), (MUON_LR, ADAM_LR), strict=True):
            for group in optimizer.param_groups:
                group["lr"] = rate * scale
            optimizer.step()
            optimizer.zero_grad()


@dataclass
class Schedule:
    """The learning rate's course, from warm-up to decay; `stop` is the first step that is not taken any more."""

    begin: int = 0
    warmup: int = 50
    decay_from: int | None = None
    stop: int | None = None

    def scale(self, step: int) -> float:
        """Factor of the learning rate at a step: rises linearly, is 1, falls linearly towards 0."""
        rising = min(1.0, (step - self.begin + 1) / self.warmup)
        if self.decay_from is None or self.stop is None or step < self.decay_from:
            return rising
        return rising * (self.stop - step) / (self.stop - self.decay_from)
