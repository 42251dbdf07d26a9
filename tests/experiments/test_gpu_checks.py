"""The checks of `make gpu` on a CPU: that they run, and can fail. What a GPU computes only a GPU can show."""

import json

import pytest
import torch

from experiments.benchmarks import gpu, gpu_rounds
from goodspeed.engine.runner import Runner
from tests.gpu import __main__ as command
from tests.gpu import engine_checks
from tests.gpu.checks import CHECKS
from verify_node.model import target

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


def test_every_row_is_kept(capsys, tmp_path):
    file = tmp_path / "rows.jsonl"
    options = ["--device", "cpu", "--shape", "micro", "--repetitions", "4", "--out", str(file)]
    assert gpu.main([*options, "--dtype", "float32"]) == 0
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row["shape"] for row in rows] == ["micro", "micro"]
    assert all({"date", "device", "driver", "torch", "wanted"} <= row.keys() for row in rows)
    assert [row["num_sessions"] for row in rows] == [2, 8]
    assert gpu.main([*options, "--limit-s", "0"]) == 0
    assert "not run, too late: micro" in capsys.readouterr().out
    assert len(file.read_text().splitlines()) == 2


def test_the_benchmark_runs_on_a_cpu_at_a_micro_size(capsys):
    assert gpu.main(["--device", "cpu", "--shape", "micro", "--repetitions", "4", "--json"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])["shapes"][0]
    assert [case["num_tokens"] for case in result["cases"]] == [7 + 2, 28 + 8]
    # Of two layers and an untied head; the embedding table is not read whole.
    assert result["weight_bytes"] == 2 * (
        512 * 64 + 64 + 2 * (2 * 64 * 80 + 2 * 64 * 16 + 3 * 64 * 128 + 2 * 64 + 2 * 8)
    )


def test_the_benchmark_times_the_verify_nodes_own_function(monkeypatch):
    def fail(*_):
        raise RuntimeError("decided")

    assert vars(gpu_rounds)["decide_match"] is vars(target)["decide_match"]
    monkeypatch.setattr(gpu_rounds, "decide_match", fail)
    with pytest.raises(RuntimeError, match="decided"):
        gpu.main(["--device", "cpu", "--shape", "micro"])


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
@pytest.mark.parametrize(("arguments", "status"), [([], 0), (["--device", "cuda"], 1)])
def test_without_cuda_the_benchmark_says_that_it_was_not_run(capsys, arguments, status):
    assert gpu.main([*arguments, "--json"]) == status
    shown = capsys.readouterr()
    assert "not run" in shown.err
    assert "not run" in json.loads(shown.out)["not_run"]
