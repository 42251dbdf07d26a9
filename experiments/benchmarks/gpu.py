"""A verify round at real size on a GPU: its forward pass, the rest of it, and the floor that memory bandwidth sets.

Random weights are built on the device, in the shape of Qwen3-14B. Sessions with a full context have drafts verified
by the code that `Target.forward` and `Target.verify` (`verify_node/model/target.py`) call: `Runner.forward` and
`decide_match`. `forward` is the engine's packed pass from token ids to logits; `dispatch` is the part of it in which
Python still hands out work. `rest` is `verify_node/model/match_sampling.py`: the target's draw at every position,
the one transfer of the draws to the host, and their comparison with the drafts there. Rounds under the ratio rule,
the planner and the network are not measured.

The floor is what no round can beat: every weight and every cached key and value is read once, at the speed of a large
copy on the same device. `new shape` is the first round of a case, in which kernels may be chosen and compiled.

It needs torch, transformers and numpy only. Times are the clock's, with the device waited for on both sides of each
part. It takes about five minutes on a large GPU (a guess: nobody has run it on one); with --quick and without a GPU
about 10 s, in which it runs every line on the CPU at a micro size; those figures mean nothing.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from dataclasses import asdict
from functools import partial
from typing import Any

import torch

from experiments.benchmarks.gpu_rounds import (
    PAGE_SIZE,
    SHAPES,
    Case,
    Rounds,
    Sampling,
    build,
    copy_bandwidth,
    weight_bytes,
)
from goodspeed.engine.checkpoints import DTYPES
from goodspeed.engine.paged.memory import KVShape, bytes_per_page, pages_for
from goodspeed.engine.runner import Runner

HEADER = (
    "sessions budget context new shape  dispatch   forward      rest  floor ms forward/floor rest/forward round/floor"
)
NO_CUDA = (
    "not run: this machine has no CUDA device, or torch is a CPU build; on one that has, run `make gpu`, and here "
    "--quick, or --device cpu --shape micro, tries the script"
)
MEMORY_FRACTION = 0.8  # of what is free beside the weights; the rest is for activations and logits
CASES = {
    "qwen3-14b": [Case(8, 28, 512), Case(8, 28, 4096), Case(64, 256, 512), Case(64, 256, 4096)],
    "micro": [Case(2, 7, 64), Case(8, 28, 100)],
}


def measure(runner: Runner, case: Case, repetitions: int, token_bytes: int, bandwidth: float) -> dict[str, Any]:
    rounds = Rounds(runner, case, Sampling())
    fill_s = rounds.fill()
    first = rounds.run()
    for _ in range(3):
        rounds.run()
    times = [rounds.run() for _ in range(repetitions)]
    rounds.free()
    dispatch_s, forward_s, rest_s = (statistics.median(column) for column in zip(*times, strict=True))
    num_bytes = weight_bytes(runner.checkpoint.model) + case.num_sessions * case.context * token_bytes
    floor_s = num_bytes / bandwidth
    return asdict(case) | {
        "num_tokens": sum(len(chunk.tokens) for chunk in rounds.chunks),
        "prefill_tokens_per_s": case.num_sessions * case.context / fill_s,
        "new_shape_s": first.forward + first.rest,
        "dispatch_s": dispatch_s,
        "forward_s": forward_s,
        "rest_s": rest_s,
        "floor_s": floor_s,
        "forward_ratio": forward_s / floor_s,
        "rest_ratio": rest_s / forward_s,
        "round_ratio": (forward_s + rest_s) / floor_s,
    }


def row(result: dict[str, Any]) -> str:
    """Returns a result as a line below `HEADER`."""
    milliseconds = (result[f"{name}_s"] * 1e3 for name in ("new_shape", "dispatch", "forward", "rest", "floor"))
    return (
        f"{result['num_sessions']:>8} {result['budget']:>6} {result['context']:>7}"
        + "".join(f" {value:>9.2f}" for value in milliseconds)
        + f" {result['forward_ratio']:>13.2f} {result['rest_ratio']:>12.2f} {result['round_ratio']:>11.2f}"
    )


def run(options: argparse.Namespace) -> dict[str, Any]:
    device, dtype = torch.device(options.device), DTYPES[options.dtype]
    if options.without_cudnn:
        torch.backends.cuda.enable_cudnn_sdp(False)
    copied = (4 << 30) if device.type == "cuda" else (64 << 20)
    bandwidth = copy_bandwidth(device, copied)
    checkpoint = build(options.shape, device, dtype)
    sizes = SHAPES[options.shape]
    kv_shape = KVShape(sizes["num_key_value_heads"], sizes["head_dim"], sizes["head_dim"])
    page_bytes = bytes_per_page(kv_shape, sizes["num_hidden_layers"], PAGE_SIZE, dtype)
    most = pages_for(page_bytes, device, MEMORY_FRACTION)
    fitting = [case for case in CASES[options.shape] if case.num_pages <= most]
    too_large = [case for case in CASES[options.shape] if case.num_pages > most]
    about = {"device": device_name(device), "torch": torch.__version__, "shape": options.shape, "dtype": options.dtype}
    about |= {"weight_bytes": weight_bytes(checkpoint.model), "kv_bytes_per_token": page_bytes // PAGE_SIZE}
    say = partial(print, file=sys.stderr if options.json else sys.stdout, flush=True)
    say(f"{about['device']}, {options.shape} in {options.dtype}, copy {bandwidth / 1e9:.0f} GB/s")
    say(HEADER)
    results = []
    if fitting:
        runner = Runner(checkpoint, num_pages=max(case.num_pages for case in fitting), page_size=PAGE_SIZE)
        for case in fitting:
            results.append(measure(runner, case, options.repetitions, page_bytes // PAGE_SIZE, bandwidth))
            say(row(results[-1]))
    for case in too_large:
        say(f"not run, {case.num_pages} pages do not fit into {most}: {case}")
    left_out = [asdict(case) for case in too_large]
    return about | {"copy_bytes_per_s": bandwidth, "cases": results, "left_out": left_out}


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m experiments.benchmarks.gpu", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="fewer repetitions; without a GPU: --device cpu --shape micro"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--device", help="cuda, cuda:N, or cpu; default: cuda, and nothing is run without it")
    parser.add_argument("--shape", choices=SHAPES, help="default: qwen3-14b")
    parser.add_argument("--dtype", default="bfloat16", choices=DTYPES)
    parser.add_argument("--repetitions", type=int, default=40, metavar="N", help="rounds timed per case (default 40)")
    parser.add_argument("--without-cudnn", action="store_true", help="keep torch's attention from choosing cuDNN")
    options = parser.parse_args(argv)
    if options.quick and options.device is None and not torch.cuda.is_available():
        options.device, options.shape = "cpu", options.shape or "micro"
    options.shape = options.shape or "qwen3-14b"
    options.repetitions = max(4, options.repetitions // 4 if options.quick else options.repetitions)
    return options


def main(argv: list[str] | None = None) -> int:
    """Returns 1 without a GPU if one was asked for, and 0 if none was (as with all benchmarks in turn)."""
    options = parse(argv)
    has_cuda = torch.cuda.is_available()
    if not has_cuda and (options.device or "cuda").startswith("cuda"):
        print(NO_CUDA, file=sys.stderr)
        if options.json:
            print(json.dumps({"not_run": NO_CUDA}))
        return 1 if options.device else 0
    options.device = options.device or "cuda"
    result = run(options)
    if options.json:
        print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
