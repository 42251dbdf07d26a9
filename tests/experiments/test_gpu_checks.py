"""The checks of `make gpu` on a CPU: that they run, and can fail. What a GPU computes only a GPU can show."""

import dataclasses
import json
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from experiments.benchmarks import gpu, gpu_rounds
from goodspeed.engine.runner import Runner
from goodspeed.wire.messages import Sampling
from tests.gpu import __main__ as command
from tests.gpu import engine_checks
from tests.gpu.checks import CHECKS
from verify_node.model import target
from verify_node.scheduler.round import Entry, Round

CPU = torch.device("cpu")
SLOW = ("schedule 1", "vocabulary 151936", "zero", "float16 logits, qwen3", "float16 logits, mistral")
QUICK = [name for name in CHECKS if not any(word in name for word in SLOW)]


@pytest.mark.thorough
@pytest.mark.parametrize("name", QUICK)
def test_a_check_passes_on_the_cpu(name):
    CHECKS[name](CPU)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["float32 logits, llama, schedule 0", "bfloat16 logits, llama"])
def test_a_rollback_that_goes_too_far_is_found(monkeypatch, name):
    monkeypatch.setattr(engine_checks, "Runner", ForgetfulRunner)
    with pytest.raises(AssertionError, match="differs by"):
        CHECKS[name](CPU)


class ForgetfulRunner(Runner):
    """Right in its own trial, and wrong afterwards."""

    def truncate(self, key, length):
        super().truncate(key, max(0, length - 1))


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_without_cuda_the_command_says_so(capsys):
    assert command.main([]) == 1
    assert "no CUDA device" in capsys.readouterr().err


def test_a_failed_check_is_named_and_the_rest_still_runs(capsys, monkeypatch):
    def fail(device):
        raise AssertionError("two is not three")

    monkeypatch.setattr(command, "CHECKS", {"first": fail, "second": lambda device: "all well"})
    assert command.main(["--device", "cpu"]) == 1
    shown = capsys.readouterr()
    for words in ("FAILED first", "ok     second", "1 failed"):
        assert words in shown.out
    assert "two is not three" in shown.err


def test_the_benchmark_runs_on_a_cpu_at_a_micro_size(capsys):
    assert gpu.main(["--device", "cpu", "--shape", "micro", "--repetitions", "4", "--json"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [case["num_tokens"] for case in result["cases"]] == [7 + 2, 28 + 8]
    # Of two layers and an untied head; the embedding table is not read whole.
    assert result["weight_bytes"] == 2 * (
        512 * 64 + 64 + 2 * (2 * 64 * 80 + 2 * 64 * 16 + 3 * 64 * 128 + 2 * 64 + 2 * 8)
    )


def test_what_the_benchmark_times_decides_as_the_verify_node_does():
    checkpoint = gpu_rounds.build("micro", CPU, torch.float32)
    case = gpu_rounds.Case(num_sessions=3, budget=7, context=20)
    runner = Runner(checkpoint, num_pages=case.num_pages, page_size=gpu_rounds.PAGE_SIZE)
    timed = gpu_rounds.Rounds(runner, case, gpu_rounds.Sampling())
    timed.fill()
    keys: list[Any] = [chunk.key for chunk in timed.chunks]  # numbers: the seeds, too
    entries = [
        Entry(key, case.context, tuple(chunk.tokens), len(chunk.tokens) - 1, True, Sampling(1.0, seed=key))
        for key, chunk in zip(keys, timed.chunks, strict=True)
    ]
    node = target.Target(checkpoint, runner)
    logits = node.forward(Round(1, tuple(entries)))
    drawn = [one.target_tokens for one in timed.decide(logits)]
    timed.entries = [  # else nothing would be accepted
        dataclasses.replace(entry, drafted=[tokens[0], *entry.drafted[1:]])
        for entry, tokens in zip(timed.entries, drawn, strict=True)
    ]
    accepting = [replace(e, tokens=(e.tokens[0], *d.drafted)) for e, d in zip(entries, timed.entries, strict=True)]
    outcomes = node.verify(Round(1, tuple(accepting)), logits)
    decided = timed.decide(logits)
    assert [(one.num_accepted, one.agreement, one.next_token) for one in decided] == [
        (outcome.num_accepted, outcome.agreement, outcome.tokens[-1]) for outcome in outcomes
    ]
    assert all(one.num_accepted >= 1 for one in decided)


def test_the_benchmark_times_the_verify_nodes_own_function(monkeypatch):
    def fail(*_):
        raise RuntimeError("decided")

    assert vars(gpu_rounds)["decide_match"] is vars(target)["decide_match"]
    monkeypatch.setattr(gpu_rounds, "decide_match", fail)
    with pytest.raises(RuntimeError, match="decided"):
        gpu.main(["--device", "cpu", "--shape", "micro"])


def test_quick_runs_without_a_gpu(capsys):
    assert gpu.main(["--quick", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)  # nothing else on standard output
    assert len(result["cases"]) == len(gpu.CASES[result["shape"]])


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
@pytest.mark.parametrize(("arguments", "status"), [([], 0), (["--device", "cuda"], 1)])
def test_without_cuda_the_benchmark_says_that_it_was_not_run(capsys, arguments, status):
    assert gpu.main([*arguments, "--json"]) == status
    shown = capsys.readouterr()
    assert "not run" in shown.err
    assert "not run" in json.loads(shown.out)["not_run"]


def test_cases_that_do_not_fit_are_named(capsys, monkeypatch):
    monkeypatch.setattr(gpu, "pages_for", lambda *_: 20)
    assert gpu.main(["--device", "cpu", "--shape", "micro", "--repetitions", "4", "--json"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [len(result[which]) for which in ("cases", "left_out")] == [1, 1]
