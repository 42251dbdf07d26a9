"""Padded passes, on a CPU: the logits of the model itself; and the kernel in Triton's interpreter, where Triton is."""

import importlib.util
import logging
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from goodspeed.engine.paged.chunks import Chunk
from goodspeed.engine.torch import loading
from goodspeed.engine.torch.attention.cuda_graphs import SIZES, plain_attend
from goodspeed.engine.torch.loading import start, try_model
from tests.gpu import engine_checks
from tests.gpu.engine_checks import CONFIGS, FLOAT32_BOUND, LARGER, run_larger, run_schedule, run_trees

CPU = torch.device("cpu")
INTERPRETED = """
import torch
from triton.runtime import interpreter
from goodspeed.engine.torch.attention.triton_kernel import attend
from goodspeed.engine.torch.kv_cache import KVShape
from goodspeed.engine.torch.trial import check_kernel

patch = interpreter._patch_lang_tensor

def patch_tensor(tensor, scope):
    patch(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())  # NumPy 2.5 refuses Triton 3.6's int(...)

interpreter._patch_lang_tensor = patch_tensor
device = torch.device("cpu")  # the interpreter multiplies no bfloat16
check_kernel(attend, KVShape(2, 32, 32), 8, torch.float16, device)
check_kernel(attend, KVShape(1, 24, 16), 5, torch.float32, device)
check_kernel(attend, KVShape(3, 16, 16), 3, torch.float32, device)
"""

COMPILED = """
from triton import compile
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from goodspeed.engine.torch.attention.triton_kernel import _attend_part, _join_parts

KINDS = dict.fromkeys(("positions", "limits", "seen", "blocks", "pages"), "*i64") | {"scale": "fp32"}
KINDS |= dict.fromkeys(("query_row", "query_head", "num_rows", "num_heads"), "i32")
KINDS |= {"parts": "*fp32", "sums": "*fp32"}

def check(function, kind, capability, **known):
    kinds = KINDS | dict.fromkeys(("query", "pool", "output"), "*" + kind) | dict.fromkeys(known, "constexpr")
    signature = {name: kinds[name] for name in function.arg_names}
    values = {(function.arg_names.index(name),): value for name, value in known.items()}
    assert compile(ASTSource(function, signature, values), target=GPUTarget("cuda", capability, 32)).asm["cubin"]

shape = dict(page_size=16, num_kv_heads=8, key_dim=64, value_dim=64, key_width=64, value_width=64, num_parts=8)
check(_attend_part, "bf16", 90, window=0, fold=4, num_queries=32, tile=64, **shape)
check(_attend_part, "fp16", 80, window=40, fold=1, num_queries=16, tile=64, num_rows=1, **shape)
check(_attend_part, "fp32", 80, window=0, fold=5, num_queries=64, tile=64, **shape)
check(_join_parts, "bf16", 90, value_dim=64, width=64, num_parts=8)
"""


@pytest.fixture
def calls(monkeypatch):
    """Rows of each padded pass's attention; every model uses plain attention as its kernel."""
    found = []

    def kernel(inputs, pool, layer, query, scaling, window):
        found.append(len(query))
        return plain_attend(inputs, pool, layer, query, scaling, window)

    monkeypatch.setattr(loading, "kernel_for", lambda device: kernel)
    return found


@pytest.mark.parametrize("name", CONFIGS)
def test_padded_passes_compute_the_models_logits(calls, name):
    differences = run_schedule(CONFIGS[name], torch.float32, CPU)
    assert float(differences.rows.max()) <= FLOAT32_BOUND
    assert all(calls.count(size) > 3 for size in (64, 128, 256))  # 3: layers; a pass of each size at the start


@pytest.mark.parametrize("name", CONFIGS)
def test_padded_trees_compute_the_logits_of_their_paths(calls, name):
    assert float(run_trees(CONFIGS[name], CPU).rows.max()) <= FLOAT32_BOUND


def test_single_tokens_follow_each_other_into_new_pages(calls):
    engine = start(engine_checks.make_checkpoint(CONFIGS["qwen3"], torch.float32, CPU), num_pages=20)
    model = engine_checks.make_checkpoint(CONFIGS["qwen3"], torch.float32, CPU).model
    texts: dict[str, list[int]] = {"a": [5], "b": [9, 8, 7]}
    engine.forward([Chunk("b", [9, 8], 0)])
    for token in range(40):
        logits = engine.forward([Chunk(key, text[-1:], 1) for key, text in texts.items()])
        expected = torch.cat(engine_checks.own_logits(model, list(texts.values()), [1, 1]))
        assert float((logits - expected).abs().max()) <= FLOAT32_BOUND
        for text in texts.values():
            text.append(token)


def test_preparing_leaves_the_sessions_pages_alone(calls):
    engine = start(engine_checks.make_checkpoint(CONFIGS["llama"], torch.float32, CPU), num_pages=20)
    assert set(calls) >= set(SIZES)
    assert all(not pages[:20].any() and pages[20].any() for pages in engine.memory.pages)
    engine.forward([Chunk("a", [1, 2, 3, 4, 5], 1)])
    (page,) = engine.pool.table("a")
    for pages in engine.memory.pages:
        assert pages[page, :5].any(-1).all()
        assert not pages[page, 5:].any()


def test_a_wrong_kernel_is_found_at_load_and_the_reason_is_logged(monkeypatch, caplog):
    def blind(inputs, pool, layer, query, scaling, window):
        return plain_attend(inputs, pool, layer, query, scaling, None)  # no window

    monkeypatch.setattr(loading, "kernel_for", lambda device: blind)
    checkpoint = engine_checks.make_checkpoint(CONFIGS["mistral"], torch.float32, CPU)
    with caplog.at_level(logging.WARNING):
        assert try_model(checkpoint, is_split=False).kernel is None
    assert "without the attention kernel and without CUDA graphs: attention with a window of 40" in caplog.text


def test_a_kernel_that_fails_with_the_model_is_left_away_and_the_model_serves(monkeypatch, caplog):
    def only_with_many_rows(inputs, pool, layer, query, scaling, window):
        if len(query) <= 16:
            raise RuntimeError("no resources")
        return plain_attend(inputs, pool, layer, query, scaling, window)

    monkeypatch.setattr(loading, "kernel_for", lambda device: only_with_many_rows)
    checkpoint = engine_checks.make_checkpoint(CONFIGS["llama"], torch.float32, CPU)
    with caplog.at_level(logging.WARNING):
        tried = try_model(checkpoint, is_split=False)
    assert tried.kernel is None
    assert "LlamaForCausalLM runs without the attention kernel and without CUDA graphs: no resources" in caplog.text
    found = start(checkpoint, num_pages=4).forward([Chunk("a", [1, 2, 3], 1)])
    model = engine_checks.make_checkpoint(CONFIGS["llama"], torch.float32, CPU).model
    assert float((found - engine_checks.own_logits(model, [[1, 2, 3]], [1])[0]).abs().max()) <= FLOAT32_BOUND


@pytest.mark.parametrize(("counts", "num_rows"), LARGER.items())
def test_larger_passes_and_long_prompts(calls, counts, num_rows):
    """Passes of up to 512 rows are padded to a graph's, larger ones have none; long prompts do not use the kernel."""
    differences = run_larger(CONFIGS["qwen3"], counts, CPU)
    assert calls[-1] == (num_rows or SIZES[0])  # the last graph that is captured is that of one row
    assert float(differences.rows.max()) <= FLOAT32_BOUND


def test_a_graph_without_memory_is_left_away_alone(calls, monkeypatch, caplog):
    engine = start(engine_checks.make_checkpoint(CONFIGS["llama"], torch.float32, CPU), num_pages=20)
    grid = engine._passes.grid

    def capture(num_rows, stream):
        if num_rows > 256:
            raise torch.OutOfMemoryError("full")
        return SimpleNamespace(replay=lambda: None), grid._call(num_rows)

    monkeypatch.setattr(grid, "_stream", object())
    monkeypatch.setattr(grid, "_capture", capture)
    with caplog.at_level(logging.WARNING):
        assert grid.prepare() == len([size for size in SIZES if size <= 256])
    assert caplog.text.count("run without a CUDA graph: full") == len(SIZES) - grid.prepare()


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton, which torch's CUDA builds bring")
@pytest.mark.parametrize(("code", "interpret"), [(INTERPRETED, "1"), (COMPILED, "0")], ids=["interpreted", "compiled"])
def test_the_triton_kernel_equals_plain_attention_when_interpreted_and_compiles_for_gpus(code, interpret):
    environment = os.environ | {"TRITON_INTERPRET": interpret}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
