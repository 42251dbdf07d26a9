"""Padded passes, on a CPU: the logits of the model itself; and the kernel in Triton's interpreter, where Triton is."""

import importlib.util
import logging
import os
import subprocess
import sys

import pytest
import torch

from goodspeed.engine import runner as runner_module
from goodspeed.engine.paged.grid import plain_attend
from tests.gpu import engine_checks
from tests.gpu.engine_checks import CONFIGS, FLOAT32_BOUND, run_schedule, run_trees

CPU = torch.device("cpu")
INTERPRETED = """
import torch
from goodspeed.engine.paged.kernel import attend
from goodspeed.engine.paged.memory import KVShape
from goodspeed.engine.trial import check_kernel

for shape, num_heads in ((KVShape(2, 32, 32), 8), (KVShape(1, 24, 16), 5), (KVShape(3, 16, 16), 3)):
    for dtype in (torch.float32, torch.float16):  # the interpreter multiplies no bfloat16
        check_kernel(attend, shape, num_heads, dtype, torch.device("cpu"))
"""


@pytest.fixture
def calls(monkeypatch):
    """Rows of each padded pass's attention; every model uses plain attention as its kernel."""
    found = []

    def kernel(inputs, pool, layer, query, scaling, window):
        found.append(len(query))
        return plain_attend(inputs, pool, layer, query, scaling, window)

    monkeypatch.setattr(runner_module, "kernel_for", lambda device: kernel)
    return found


@pytest.mark.parametrize("name", CONFIGS)
def test_padded_passes_compute_the_models_logits(calls, name):
    differences = run_schedule(CONFIGS[name], torch.float32, CPU)
    assert float(differences.rows.max()) <= FLOAT32_BOUND
    assert set(calls) == {1, 2, 4, 8, 16, 32, 64, 128, 256}


@pytest.mark.parametrize("name", CONFIGS)
def test_padded_trees_compute_the_logits_of_their_paths(calls, name):
    assert float(run_trees(CONFIGS[name], CPU).rows.max()) <= FLOAT32_BOUND


def test_a_wrong_kernel_is_found_at_load_and_the_reason_is_logged(monkeypatch, caplog):
    def blind(inputs, pool, layer, query, scaling, window):
        return plain_attend(inputs, pool, layer, query, scaling, None)  # no window

    monkeypatch.setattr(runner_module, "kernel_for", lambda device: blind)
    checkpoint = engine_checks.make_checkpoint(CONFIGS["mistral"], torch.float32, CPU)
    with caplog.at_level(logging.WARNING):
        assert runner_module.try_model(checkpoint, is_split=False).kernel is None
    assert "without the attention kernel and CUDA graphs: attention with a window of 40" in caplog.text


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton, which torch's CUDA builds bring")
def test_the_triton_kernel_equals_plain_attention_in_tritons_interpreter():
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    run = subprocess.run([sys.executable, "-c", INTERPRETED], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
