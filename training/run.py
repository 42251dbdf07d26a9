"""A training run that can be stopped at any time and goes on where it was.

The state of a run is one folder: weights and optimizer state as safetensors, the schedule as JSON. Never pickle.
"""

import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import LlamaForCausalLM

from training.optimizer import Optimizer, Schedule

SAVE_EVERY_S = 180.0
DECAY_SHARE = 0.25  # of the time a run is given


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
        meta = {"step": self.step, "schedule": asdict(self.schedule)}
        partial = self.folder / "state.partial"
        save_file({**weights, **self.optimizer.state()}, partial, metadata={"run": json.dumps(meta)})
        partial.replace(self.folder / "state.safetensors")

    def restore(self) -> bool:
        """Go on from the saved state, if there is one. A finished run begins a new stable phase."""
        path = self.folder / "state.safetensors"
        if not path.exists():
            return False
        tensors = load_file(path)
        with safe_open(path, framework="pt") as file:
            meta = json.loads(file.metadata()["run"])
        prefix = "weights/"
        weights = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
        self.model.load_state_dict(weights, strict=False)
        self.optimizer.load_state({k: v for k, v in tensors.items() if not k.startswith(prefix)})
        self.step, self.schedule = meta["step"], Schedule(**meta["schedule"])
        if self.finished:
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
