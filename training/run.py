"""A training run, which can be stopped at any time: the next one goes on from its weights, with a warm-up of its own.

Weights and the number of steps are one file of safetensors. Never pickle. Muon updates the matrices of the hidden
layers, AdamW the rest: warm-up, stable, decay.
"""

import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import LlamaForCausalLM

SAVE_EVERY_S = 180.0
DECAY_SHARE = 0.25  # of the time a run is given

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


class Run:
    """One model, its optimizer, its schedule, and the step it is at."""

    def __init__(self, model: LlamaForCausalLM, folder: Path) -> None:
        self.model, self.folder = model, folder
        self.optimizer, self.schedule, self.step = Optimizer(model), Schedule(), 0

    @property
    def finished(self) -> bool:
        return self.schedule.stop is not None and self.step >= self.schedule.stop

    def update(self, loss: Tensor) -> None:
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step(self.schedule.scale(self.step))
        self.step += 1

    def decay(self, num_steps: int) -> None:
        self.schedule.decay_from, self.schedule.stop = self.step, self.step + max(1, num_steps)

    def save(self) -> None:
        """Replace the saved state; a reader sees the old one or the new one."""
        self.folder.mkdir(parents=True, exist_ok=True)
        weights = {f"weights/{k}": v.contiguous() for k, v in self.model.state_dict().items() if k != "lm_head.weight"}
        partial = self.folder / "state.partial"
        save_file(weights, partial, metadata={"run": json.dumps({"step": self.step})})
        partial.replace(self.folder / "state.safetensors")

    def restore(self) -> bool:
        """Go on from the saved weights, if there are any, with a new stable phase."""
        path = self.folder / "state.safetensors"
        if not path.exists():
            return False
        prefix = "weights/"  # states of before November 29, 2026 also have the optimizer's
        weights = {k.removeprefix(prefix): v for k, v in load_file(path).items() if k.startswith(prefix)}
        self.model.load_state_dict(weights, strict=False)
        with safe_open(path, framework="pt") as file:
            self.step = json.loads(file.metadata()["run"])["step"]
        self.schedule = Schedule(begin=self.step)
        return True


def smooth(mean: float, value: float) -> float:
    """Moving average over about 50 values; the first begins it."""
    return value if math.isnan(mean) else 0.98 * mean + 0.02 * value


def train(run: Run, loss: Callable[[int], Tensor], seconds: float) -> None:
    """Steps until the time is used up, the last DECAY_SHARE of it with a falling learning rate.

    loss: of a step. Progress goes to standard error.
    """
    begin = saved = now = time.monotonic()
    mean = step_s = math.nan
    while not run.finished:
        lost = loss(run.step)
        run.update(lost)
        mean = smooth(mean, lost.item())
        last, now = now, time.monotonic()
        step_s = smooth(step_s, now - last)
        if run.step % 20 == 0:
            what = f"step {run.step} loss {mean:.3f} {step_s:.2f} s/step {now - begin:.0f} s"
            print(what, file=sys.stderr, flush=True)
        if run.schedule.stop is None and now - begin >= seconds * (1 - DECAY_SHARE):
            run.decay(int(seconds * DECAY_SHARE / step_s))
        if now - saved >= SAVE_EVERY_S or run.finished:
            run.save()
            saved = time.monotonic()
