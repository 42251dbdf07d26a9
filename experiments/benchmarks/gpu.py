"""A verify round at real size on a GPU: its forward pass, the rest of it, and the floor that memory bandwidth sets.

Weights are random ones in the shape of Qwen3-14B, made on the device. Sessions with a full context have drafts verified
by the code that `Target.forward` and `Target.verify` (`verify_node/model/target.py`) call: `Runner.forward` and
`decide_match`.
`forward` is the engine's packed pass from token ids to logits; `dispatch` is the part of it in which Python still hands
out work. `rest` is `verify_node/model/match_sampling.py`: the target's draw at every position, the one transfer of the
draws to the host, and their comparison with the drafts there. Rounds under the ratio rule, the planner and the network
are not measured.

The floor is what no round can beat: every weight and every cached key and value is read once, at the speed of a large
copy on the same device. `new shape` is the first round of a case, in which kernels may be chosen and compiled.

It needs torch, transformers and numpy only. A round is timed by the clock, with the device waited for on both sides,
and its forward pass by the device's own events, as in `Target.run`. --out keeps every row, with date, GPU, driver and
torch. After --limit-s no case begins, and those left are named. It takes about as long as that; with --quick and
without a GPU about 10 s, on the CPU at a micro size; those figures mean nothing.
"""

import argparse
import gc
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
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
from experiments.harness import benchmark
from goodspeed.engine.checkpoints import DTYPES
from goodspeed.engine.paged.memory import bytes_per_page, pages_for
from goodspeed.engine.runner import Runner, try_model

WANTED = {"forward_ratio": 1.25, "rest_ratio": 0.05}
"""At most: forward over floor, the rest over forward."""

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


def measure(runner: Runner, case: Case, repetitions: int, about: dict[str, Any], bandwidth: float) -> dict[str, Any]:
    rounds = Rounds(runner, case, Sampling())
    fill_s = rounds.fill()
    first = rounds.run()
    for _ in range(3):
        rounds.run()
    times = [rounds.run() for _ in range(repetitions)]
    rounds.free()
    dispatch_s, forward_s, rest_s = (statistics.median(column) for column in zip(*times, strict=True))
    num_bytes = about["weight_bytes"] + case.num_sessions * case.context * about["kv_bytes_per_token"]
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


def run(options: argparse.Namespace, shape: str, say: Callable[[str], None]) -> dict[str, Any]:
    """Measures all cases of a shape; those that do not fit, or begin too late, are named."""
    device, dtype = torch.device(options.device), DTYPES[options.dtype]
    bandwidth = copy_bandwidth(device, (4 << 30) if device.type == "cuda" else (64 << 20))
    checkpoint = build(shape, device, dtype)
    about: dict[str, Any] = {"shape": shape, "dtype": options.dtype, "weight_bytes": weight_bytes(checkpoint.model)}
    _, kv_shape, num_layers, _ = try_model(checkpoint, is_split=False)
    page_bytes = bytes_per_page(kv_shape, num_layers, PAGE_SIZE, dtype)
    most = pages_for(page_bytes, device, MEMORY_FRACTION)
    cases = CASES[shape]
    fitting = [case for case in cases if case.num_pages <= most]
    about |= {"kv_bytes_per_token": page_bytes // PAGE_SIZE, "num_graphs": None}
    say(f"{shape} in {options.dtype}, copy {bandwidth / 1e9:.0f} GB/s")
    results = list[dict[str, Any]]()
    if fitting:
        num_pages = max(case.num_pages for case in fitting)
        runner = Runner(checkpoint, num_pages=num_pages, page_size=PAGE_SIZE)
        about["num_graphs"] = runner.num_graphs  # None: without the kernel
        say(f"CUDA graphs: {runner.num_graphs}")
        say(HEADER)
        for case in fitting:
            if time.monotonic() < options.ends_at:
                results.append(measure(runner, case, options.repetitions, about, bandwidth))
                say(row(results[-1]))
    measured = [(result["num_sessions"], result["context"]) for result in results]
    left_out = [asdict(case) for case in cases if (case.num_sessions, case.context) not in measured]
    for one in left_out:
        say(f"not run, too many pages or too late: {one}")
    return about | {"copy_bytes_per_s": bandwidth, "cases": results, "left_out": left_out}


def rows_of(result: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields every row of a shape with what it belongs to."""
    about = {name: value for name, value in result.items() if not isinstance(value, list | dict)}
    for case in result["cases"]:
        yield about | case
    for case in result["left_out"]:
        yield about | case | {"not_run": True}


def machine(device: torch.device) -> dict[str, str]:
    """Date, device, driver and versions."""
    found = {"date": datetime.now(UTC).isoformat(timespec="seconds"), "device": device_name(device)}
    found |= {"torch": torch.__version__, "cuda": str(torch.version.cuda), "driver": "none"}
    if device.type == "cuda":
        command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        try:
            found["driver"] = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0]
        except (OSError, subprocess.CalledProcessError, IndexError) as error:
            found["driver"] = f"unknown ({error})"
    return found


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = benchmark.parser("gpu", __doc__, "fewer repetitions; without a GPU: --device cpu --shape micro")
    parser.add_argument("--device", help="cuda, cuda:N, or cpu; default: cuda, and nothing is run without it")
    parser.add_argument("--shape", nargs="+", choices=SHAPES, help="default: qwen3-14b")
    parser.add_argument("--dtype", default="bfloat16", choices=DTYPES)
    parser.add_argument("--repetitions", type=int, default=40, metavar="N", help="rounds timed per case (default 40)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="append each row to this file, a JSON object a line")
    parser.add_argument("--limit-s", type=float, default=420, metavar="S", help="begin no case later (default 420)")
    options = parser.parse_args(argv)
    if options.quick and options.device is None and not torch.cuda.is_available():
        options.device, options.shape = "cpu", options.shape or ["micro"]
    options.shape = options.shape or ["qwen3-14b"]
    options.repetitions = max(4, options.repetitions // 4 if options.quick else options.repetitions)
    options.ends_at = time.monotonic() + options.limit_s
    return options


def main(argv: list[str] | None = None) -> int:
    """Returns 1 without a GPU if one was asked for, and 0 if none was (as with all benchmarks in turn)."""
    options = parse(argv)
    has_cuda = torch.cuda.is_available()
    if not has_cuda and (options.device or "cuda").startswith("cuda"):
        print(NO_CUDA, file=sys.stderr)
        benchmark.report(options, {"not_run": NO_CUDA})
        return 1 if options.device else 0
    options.device = options.device or "cuda"
    say = partial(benchmark.say, options)
    about, shapes = machine(torch.device(options.device)), list[dict[str, Any]]()
    say(", ".join(f"{name} {value}" for name, value in (about | {"wanted": WANTED}).items()))
    for shape in options.shape:
        if time.monotonic() >= options.ends_at:
            say(f"not run, too late: {shape}")
            continue
        try:
            shapes.append(run(options, shape, say))
        except torch.OutOfMemoryError as error:
            say(f"not run, too large for this device: {shape} ({error})")
            continue
        finally:
            gc.collect()  # a graph's memory, before the next weights
            if has_cuda:
                torch.cuda.empty_cache()
        if options.out:
            with options.out.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(about | {"wanted": WANTED} | one) + "\n" for one in rows_of(shapes[-1]))
    benchmark.report(options, about | {"shapes": shapes})
    return 0


if __name__ == "__main__":
    sys.exit(main())
