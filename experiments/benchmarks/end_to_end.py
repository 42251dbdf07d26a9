"""Tokens per second of GoodSpeed beside what users would pick instead: the same models, prompts and machine, one run.

*plain*: the target's own `generate`, one stream. *assisted*: Hugging Face assisted generation, one stream (it takes no
batches, so eight users are eight streams in turn). *prompt_lookup*: the same with drafts from the text itself
(`prompt_lookup_num_tokens`). *plain_8*: `generate` of a batch of eight. *goodspeed_1*, *goodspeed_8*: one and eight
draft nodes, each a process, served by one verify node; with *_no_speculation* the same without drafts: what the engine
alone gives. Every text has the same length (nothing ends early). With eight clients each asks for several domains in an
order of its own, one after the other, so eight different texts are always being written, as in a batch of plain_8. A
run ends with its slowest client; with four texts each, that is little of it. All ways take turns in every repetition,
each time another one first; medians.

The tiny target costs overhead, not weights, so `padded` is the same target at the cost of 116M parameters
(`load/padded.py`): it writes the same texts, and every way gets the same checkpoint. --target chooses others; 14b is
the tiny target padded to that size, for a GPU: with --device cuda the verify node and `generate` compute there, in the
checkpoint's precision, and the draft nodes on the CPU's cores beside it.

Each repetition has other held-out prompts, one of each of the eight domains. Draft nodes keep no history, so drafts
come from a text itself. With --busy another process computes all the time.

With `--target smollm2`, a real model, users ask the questions of `peers`, and answers end by themselves: n-grams, a
draft model of the target's own size and the one made for it, each beside no drafts at the same nodes. `never_worse` has
tokens per second with drafts / without for each case, until the last chat ends; `own_speed` the geometric mean of the
chats' own tokens per second. It takes about 15 minutes. `--at-once 1 2 4 8 16 --drafters smollm2-draft` is AdaSpec's
Fig. 12, live: what drafts bring by the number of chats; with more than eight, questions are asked twice. `--prompts
experiments/prompts` asks eight questions of each domain instead, with cells by domain.

It takes about 8 minutes with the tiny target on two cores; about 35 minutes with the padded one; about 45 s with
--quick.
"""

import argparse
import asyncio
import contextlib
import gc
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers

from experiments.benchmarks.load import chats, padded
from experiments.benchmarks.load.padded import LIKE, SHAPES
from experiments.benchmarks.load.ways import (
    ALONE,
    DRAFTS,
    TARGET,
    WAYS,
    Alone,
    ByGoodSpeed,
    Text,
    Way,
    Written,
    for_generate,
)
from experiments.benchmarks.nodes.workers import cluster, end
from experiments.harness import benchmark
from goodspeed.embedded import prompts
from goodspeed.embedded.prompts import NUM_DOMAINS
from goodspeed.engine.model_files import checkpoint_folder
from goodspeed.engine.tokenizing.text import encode_prompt
from goodspeed.engine.torch import checkpoints
from goodspeed.errors import GoodSpeedError
from goodspeed.serving.parser import CommandLine

NUM_CLIENTS = 8
PADDED = "padded"
GPU_GAIN = 1.8
"""Wanted on a GPU: eight clients over the better of batched plain and no drafts, at least."""

GPU_OPTIONS = ("--memory-fraction=0.1",)
"""Options of the verify node on a GPU. Its default of 0.85 of the memory that its weights leave would leave too little
for the copy of the target that `generate` loads afterwards. With 14B parameters on 80 GB a tenth of the rest is 32,000
tokens; the eight texts have less than 3,000."""

RATIOS = {
    "ratio_1": ("goodspeed_1", ("plain", "assisted", "prompt_lookup")),
    "ratio_8": ("goodspeed_8", ("plain_8", "goodspeed_8_no_speculation")),
    "ratio_8_sequential": ("goodspeed_8", ("assisted",)),
}
"""A way, and those of which the best one is what it is compared with."""

BUSY = "import numpy as np\na = np.random.rand(256, 256).astype(np.float32)\nwhile True: a @ a"


def on_gpu(device: str) -> bool:
    return device.startswith("cuda")


def wanted(target: str, temperature: float, busy: bool, device: str) -> dict[str, float]:
    """The least ratios that are wanted."""
    if target == TARGET:
        own, beside_busy, one = (1.02, 0.98, 1.2) if temperature else (1.1, 1.0, 1.3)
    else:
        own, beside_busy, one = (1.15, 1.15, 1.5) if temperature else (1.35, 1.35, 1.7)
    ratio_8 = GPU_GAIN if on_gpu(device) else beside_busy if busy else own
    return {"ratio_1": one, "ratio_8": ratio_8, "ratio_8_sequential": 2.5}


class Comparison:
    """Some ways in turn, at one temperature."""

    def __init__(self, ways: dict[str, Way], temperature: float) -> None:
        self.ways = ways
        self.temperature = temperature
        self.rates: dict[str, list[float]] = {way: [] for way in ways}  # tokens per second in each repetition
        self.num_different = 0

    def run(self, rows: Sequence[Sequence[Text]]) -> None:
        """Runs all ways on each row of prompts; leaves out the first row, which warms up."""
        for repetition, texts in enumerate(rows):
            written = {}
            for way in benchmark.in_turn(self.ways, repetition):
                started = time.perf_counter()
                written[way] = self.ways[way](texts)
                rate = sum(len(one.tokens) for one in written[way]) / (time.perf_counter() - started)
                if repetition:
                    self.rates[way].append(rate)
                benchmark.note(
                    f"T={self.temperature:g}: repetition {repetition} of {len(rows) - 1}: {way} {rate:.1f} tokens/s"
                )
            self.num_different += self._differ(written)

    def _differ(self, written: dict[str, list[Written]]) -> int:
        """Counts GoodSpeed's texts that differ from the first of the same prompt and seed; near-ties can."""
        known = {one.number: one.tokens for one in written.get("plain", [])} if self.temperature == 0 else {}
        served = [one for way, texts in written.items() if way not in ALONE for one in texts]
        return sum(known.setdefault(one.number, one.tokens) != one.tokens for one in served)

    def result(self) -> dict[str, Any]:
        median = {way: statistics.median(rates) for way, rates in self.rates.items()}
        return median | ratios(median) | {"num_different": self.num_different, "repetitions": self.rates}


def ratios(median: dict[str, float]) -> dict[str, float]:
    """The ratios of those ways that ran, each with all that it is compared with."""
    return {
        name: median[way] / max(median[one] for one in rivals)
        for name, (way, rivals) in RATIOS.items()
        if {way, *rivals} <= median.keys()
    }


def drafts(served: ByGoodSpeed) -> dict[str, Any]:
    """Drafted and accepted tokens by way, and by what drafted them where that is told; the share accepted."""
    drafted = {way: counts for way, counts in served.num_drafted.items() if counts["all"]}
    return {
        "drafted": {way: dict(counts) for way, counts in drafted.items()},
        "accepted": {way: dict(served.num_accepted[way]) for way in drafted},
        "draft_acceptance_rate": {way: served.num_accepted[way]["all"] / of["all"] for way, of in drafted.items()},
    }


def show(result: dict[str, Any]) -> None:
    few = (
        "" if result["num_clients"] == NUM_CLIENTS else f", with {result['num_clients']} clients and texts instead of 8"
    )
    beside = ", beside a busy process" if result["busy"] else ""
    setting = f"{result['target']} on {result['device']}, temperature {result['temperature']:g}{beside}"
    print(f"{setting}: tokens/s (median; lowest to highest){few}")
    for way, rates in result["repetitions"].items():
        print(f"  {way:<28} {result[way]:>7.1f}   ({min(rates):.1f} to {max(rates):.1f})")
    for name in RATIOS:
        if name in result:
            least = result["wanted"].get(name)
            print(f"  {name:<28} {result[name]:>7.2f}" + (f"   (wanted: at least {least})" if least else ""))
    for way, share in result["draft_acceptance_rate"].items():
        by_source = ", ".join(
            f"{source} {result['accepted'][way].get(source, 0)} of {number}"
            for source, number in result["drafted"][way].items()
        )
        print(f"  {way}: share of drafted tokens accepted {share:.2f} ({by_source})")
    print(f"  texts that differ: {result['num_different']}")


@contextlib.contextmanager
def somebody_else(is_busy: bool) -> Iterator[None]:
    """Another process that computes on one core, if wanted."""
    if not is_busy:
        yield
        return
    environment = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, "-c", BUSY], stdin=subprocess.PIPE, text=True, env=environment)
    try:
        yield
    finally:
        end(process)


def held_out(num_rows: int) -> list[list[Text]]:
    """Returns the prompts of each repetition, which no model was trained on: one of each domain."""
    tokenizer, loaded = checkpoints.load_vocabulary(TARGET).tokenizer, prompts.load()
    texts = [Text(encode_prompt(tokenizer, one.prompt), one.seed) for one in loaded[: num_rows * NUM_DOMAINS]]
    return [texts[first : first + NUM_DOMAINS] for first in range(0, len(texts), NUM_DOMAINS)]


@contextlib.contextmanager
def model_of(target: str, device: str) -> Iterator[str]:
    """Yields the folder of a padded target, made on the device; any other target is itself."""
    size = LIKE if target == PADDED else target
    if size not in SHAPES:
        yield target
        return
    with tempfile.TemporaryDirectory() as folder:
        benchmark.note(f"padding {TARGET} to {size.upper()} parameters in {folder}")
        padded.pad(checkpoint_folder.find_folder(TARGET), SHAPES[size], Path(folder), device=device)
        yield folder


def measure(options: argparse.Namespace, target: str, model: str, temperature: float, busy: bool) -> dict[str, Any]:
    """All ways at one temperature, with nodes of its own. model: the target's, or its padded copy."""
    rows = [row[: options.texts] for row in held_out(options.repetitions + 1)]
    verify = [f"--device={options.device}", *(GPU_OPTIONS if on_gpu(options.device) else ()), *options.verify]
    models = [DRAFTS[number % len(DRAFTS)] for number in range(options.clients)]
    with cluster(models, verify, ["--history=off", *options.draft], target=model, pin=options.pin) as workers:
        served = ByGoodSpeed(workers, options.tokens, options.turns, temperature)
        alone = Alone(model, options.tokens, temperature, options.device)
        ways: dict[str, Way] = {
            way: getattr(alone, way) if way in ALONE else partial(served.write, way) for way in options.ways
        }
        comparison = Comparison(ways, temperature)
        with somebody_else(busy):
            comparison.run(rows)
    about = {
        "target": target,
        "device": options.device,
        "temperature": temperature,
        "num_clients": options.clients,
        "busy": busy,
    }
    least = wanted(target, temperature, busy, options.device)
    return about | comparison.result() | drafts(served) | {"wanted": least}


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    results = []
    for target in options.target:
        if chats.is_real(target):
            with somebody_else(options.busy):
                results.append(asyncio.run(chats.measure(options, target)))
            for line in chats.lines(results[-1]):
                print(line)
            continue
        with model_of(target, options.device) as model:
            for temperature in options.temperature:
                results.append(measure(options, target, model, temperature, options.busy))
                show(results[-1])
        for_generate.cache_clear()  # a GPU's memory, before the next target
        gc.collect()
        torch.cuda.empty_cache()
    return results


def parse() -> argparse.Namespace:
    parser = benchmark.parser("end_to_end", __doc__, "one client instead of eight, one short repetition")
    parser.add_argument("--repetitions", type=int, default=5, help="after one that warms up (default 5)")
    parser.add_argument("--temperature", type=float, nargs="+", default=[1.0, 0.0], help="default: 1 0")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), help="default: all")
    parser.add_argument(
        "--target",
        nargs="+",
        default=[TARGET, PADDED],
        metavar="NAME",
        help=f"also {', '.join(SHAPES)}: {TARGET} padded to that size, in TMPDIR (default: {TARGET} {PADDED})",
    )
    parser.add_argument(
        "--device", default="cpu", help="of the verify node and of generate: cpu, cuda or cuda:N (default cpu)"
    )
    parser.add_argument(
        "--drafters",
        nargs="+",
        choices=chats.DRAFTERS,
        default=list(chats.DRAFTERS),
        help="with a real target; default: all",
    )
    parser.add_argument(
        "--at-once", type=int, nargs="+", metavar="N", help="with a real target: numbers of chats (default: 1 8)"
    )
    parser.add_argument(
        "--prompts", type=Path, metavar="FOLDER", help="with a real target: DOMAIN.jsonl with `id` and `turns` a line"
    )
    parser.add_argument("--busy", action="store_true", help="another process computes on one core all the time")
    parser.add_argument("--verify", nargs="*", default=[], help="options of goodspeed-verify, as --verify=--budget=16")
    parser.add_argument("--draft", nargs="*", default=[], help="options of goodspeed-draft")
    parser.set_defaults(tokens=64, turns=4, clients=NUM_CLIENTS, texts=NUM_DOMAINS, answer=160)
    options = parser.parse_args()
    complete(options)
    check(options, parser)
    return options


def complete(options: argparse.Namespace) -> None:
    """Sets what depends on other options."""
    options.pin = not on_gpu(options.device)  # a core for the verify node
    if options.quick:
        options.tokens, options.turns, options.repetitions, options.clients, options.texts = 4, 1, 1, 1, 1
        options.answer = 8
        options.temperature = options.temperature[:1]
    options.at_once = options.at_once or sorted({1, options.clients})


def check(options: argparse.Namespace, parser: CommandLine) -> None:
    """Exits with an error for options that do not go together."""
    if min(options.at_once) < 1:
        parser.error("--at-once must be 1 at least")
    if any(map(chats.is_real, options.target)) and on_gpu(options.device):
        parser.error("--device is for the targets that are no real models")
    if (most := len(prompts.load()) // NUM_DOMAINS - 1) < options.repetitions:
        parser.error(f"--repetitions must be {most} at most: no prompt is asked for twice")


def main() -> int:
    options = parse()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()  # it warns about its own defaults
    try:
        results = run(options)
    except GoodSpeedError as error:
        sys.exit(str(error))
    first = {result["target"]: result for result in reversed(results)}
    found = {"benchmark": "end_to_end", **results[0], "cases": results}
    benchmark.report(options, found | ({PADDED: first[PADDED]} if PADDED in first else {}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
