"""Runs resume from their weights; a microscopic model stands for what is trained."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

from training import run as run_module
from training.run import Run, Schedule, train

SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24, "vocab_size": 32}
TOKENS = torch.arange(40_000) % 7 + torch.arange(40_000) % 3


def microscopic(folder: Path) -> Run:
    torch.manual_seed(3)
    return Run(LlamaForCausalLM(LlamaConfig(**SMALL, tie_word_embeddings=True)), folder)


def advance(run: Run, num_steps: int) -> Run:
    for _ in range(num_steps):
        row = TOKENS[run.step * 32 : run.step * 32 + 33]
        logits = run.model(input_ids=row[None, :-1], use_cache=False).logits
        run.update(functional.cross_entropy(logits[0], row[1:]))
    return run


def test_a_run_goes_on_from_its_weights_with_a_new_phase(tmp_path: Path) -> None:
    first = advance(microscopic(tmp_path), 7)
    first.save()
    resumed = microscopic(tmp_path)
    assert resumed.restore()
    assert (resumed.step, resumed.schedule) == (7, Schedule(begin=7))
    found, wanted = (run.model.state_dict() for run in (resumed, first))
    assert all(torch.equal(found[name], tensor) for name, tensor in wanted.items())
    resumed.decay(6)
    assert advance(resumed, 6).finished


def test_time_budget_leaves_time_for_the_decay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock gives every look one second."""
    clock = iter(range(10_000))
    look = SimpleNamespace(monotonic=lambda: float(next(clock)))
    monkeypatch.setattr(run_module, "time", look)  # not the module itself, at whose clock other threads look, too
    run = microscopic(tmp_path)

    def loss(step: int) -> Tensor:
        row = TOKENS[step * 32 : step * 32 + 33]
        return functional.cross_entropy(run.model(input_ids=row[None, :-1], use_cache=False).logits[0], row[1:])

    train(run, loss, 40.0)
    assert (run.schedule.decay_from, run.schedule.stop) == (30, 40)
    assert run.step == 40
    assert (tmp_path / "state.safetensors").exists()
