"""Serving over HTTP: waiting and writing times at rising request rates, and the cost of the HTTP layer.

*sweep*: streamed completions arrive at random (Poisson, from a seed) at two draft nodes in turn (one with --quick),
each a process; their prompts are of all domains, their texts of one length (nothing ends early). The same arrivals are
served with speculation and, as `goodspeed: {"speculate": false}` asks, by plain decoding of the same target. Times
count from when a request was due: *first* to its first text, *per token* from there to its last, *gap* between two
pieces of text (a piece is one token or more). A request that is not answered completely is lost; if any is, the exit
status is 1.

*overhead*: eight texts at once from one draft node over HTTP, and the same written by the same process without HTTP
(its `Service` asked directly: the same sessions, tokens and text, but no server, requests, chunks or sockets), in turn;
medians of the pairs. The load generator shares the machine's cores with the nodes; its CPU time is told apart.

It takes about 2 minutes on two cores; about 20 s with --quick.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from experiments.benchmarks.load.serving_overhead import compare
from experiments.benchmarks.nodes.http_load import Answer, BadAnswer, Sent, poisson, send_all
from experiments.benchmarks.nodes.serving_nodes import Nodes, Text, nodes
from experiments.harness import benchmark
from goodspeed.embedded import prompts

NUM_STREAMS = 8
WANTED_OVERHEAD = 0.10
MODES = {"speculative": True, "plain": False}
TIMES = {"first_s": "first", "per_token_s": "per token", "gap_s": "gap"}


@dataclass(frozen=True)
class Plan:
    num_draft_nodes: int
    rates: tuple[float, ...]  # requests a second, all draft nodes together
    duration_s: float  # of each rate, in each mode
    num_tokens: int  # of each text of the sweep
    num_pairs: int
    num_pair_tokens: int  # of each text of the pairs


FULL = Plan(2, (2.0, 4.0, 8.0), 6.0, 48, 5, 96)
QUICK = Plan(1, (2.0,), 1.5, 16, 1, 16)


def texts(count: int, num_tokens: int, *, speculate: bool) -> list[Text]:
    """Returns requests for prompts of all domains in turn, each with its seed: both modes write the same texts."""
    lines = prompts.load()
    return [Text(lines[i % len(lines)].prompt, num_tokens, 1.0, i, speculate) for i in range(count)]


async def sweep(nodes: Nodes, plan: Plan, options: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for seed, rate in enumerate(plan.rates):
        due = poisson(rate, plan.duration_s, seed)
        for mode, speculate in MODES.items():
            row = await serve(nodes, texts(len(due), plan.num_tokens, speculate=speculate), due)
            rows.append({"mode": mode, "rate": rate, **row})
            show(rows[-1], options)
    return rows


async def serve(nodes: Nodes, wanted: Sequence[Text], due: Sequence[float]) -> dict[str, Any]:
    began, cpu_s = time.perf_counter(), time.process_time()
    sent = await send_all(nodes.addresses, [text.body() for text in wanted], due)
    elapsed_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu_s
    answers = read(sent, wanted)
    return {
        **summary(answers),
        "tokens_per_s": sum(answer.num_tokens for answer in answers) / elapsed_s,
        "num_requests": len(sent),
        "num_lost": len(sent) - len(answers),
        "load_generator_cpu_s": cpu_s,
    }


def read(sent: Sequence[Sent], wanted: Sequence[Text]) -> list[Answer]:
    """Returns the complete answers; prints why another is lost."""
    answers = []
    for one, text in zip(sent, wanted, strict=True):
        try:
            answers.append(one.answer(text.max_tokens))
        except BadAnswer as error:
            print(f"a request is lost: {error}", file=sys.stderr)
    return answers


def summary(answers: Sequence[Answer]) -> dict[str, dict[str, float] | None]:
    """Returns quantiles of the users' waiting times."""
    gaps = [late - early for answer in answers for early, late in pairwise(answer.pieces_s)]
    return {
        "first_s": quantiles([answer.pieces_s[0] for answer in answers]),
        "per_token_s": quantiles([answer.per_token_s for answer in answers]),
        "gap_s": quantiles(gaps),
    }


def quantiles(seconds: Sequence[float]) -> dict[str, float] | None:
    if not seconds:
        return None
    return dict(zip(("median", "p95", "p99"), map(float, np.quantile(seconds, (0.5, 0.95, 0.99))), strict=True))


async def overhead(nodes: Nodes, plan: Plan) -> dict[str, Any]:
    """Returns the overhead by mode."""
    return {
        mode: await compare(nodes, texts(NUM_STREAMS, plan.num_pair_tokens, speculate=speculate), plan.num_pairs)
        for mode, speculate in MODES.items()
    }


# -- tables ------------------------------------------------------------------------------------------------------------

HEADER = f"{'rate':>5} {'mode':<12} {'lost':>9} {'tokens/s':>9}" + "".join(
    f"{name + ' ms: median':>20} {'p95':>6} {'p99':>6}" for name in TIMES.values()
)


def show(row: dict[str, Any], options: argparse.Namespace) -> None:
    lost = f"{row['num_lost']} of {row['num_requests']}"
    cells = [row[time] or dict.fromkeys(("median", "p95", "p99"), float("nan")) for time in TIMES]
    benchmark.say(
        options,
        f"{row['rate']:>5g} {row['mode']:<12} {lost:>9} {row['tokens_per_s']:>9.0f}"
        + "".join(f"{c['median'] * 1e3:>20.1f} {c['p95'] * 1e3:>6.1f} {c['p99'] * 1e3:>6.1f}" for c in cells),
    )


def show_overhead(mode: str, result: dict[str, Any], options: argparse.Namespace) -> None:
    http, direct = result["http"], result["direct"]
    benchmark.say(
        options,
        f"{NUM_STREAMS} streams, {mode}: {http['clock_s'] * 1e3:.2f} ms per token of a stream over HTTP,"
        f" {direct['clock_s'] * 1e3:.2f} without: {result['http_overhead']:+.1%}"
        f" (wanted: at most {WANTED_OVERHEAD:.0%});"
        f" CPU of the draft node {http['draft_cpu_s'] * 1e3:.2f} and {direct['draft_cpu_s'] * 1e3:.2f} ms a token"
        f" ({result['draft_cpu_overhead']:+.1%}), of both nodes {result['nodes_cpu_overhead']:+.1%};"
        f" of the load generator {http['load_generator_cpu_s'] * 1e3:.2f}",
    )


async def run(plan: Plan, options: argparse.Namespace) -> dict[str, Any]:
    async with nodes(plan.num_draft_nodes) as running:
        compared = await overhead(running, plan)
        for mode, result in compared.items():
            show_overhead(mode, result, options)
        benchmark.say(options, HEADER)
        rows = await sweep(running, plan, options)
    return {
        "benchmark": "serving",
        "plan": asdict(plan),
        "http_overhead": compared["speculative"]["http_overhead"],
        "http_overhead_plain": compared["plain"]["http_overhead"],
        "wanted": {"http_overhead": WANTED_OVERHEAD, "num_lost": 0},
        "num_lost": sum(row["num_lost"] for row in rows),
        "load_generator_cpu_s": sum(row["load_generator_cpu_s"] for row in rows),
        "overhead": compared,
        "rows": rows,
    }


def main() -> int:
    options = benchmark.parser("serving", __doc__, "one draft node, one rate, fewer and shorter texts").parse_args()
    try:
        result = asyncio.run(run(QUICK if options.quick else FULL, options))
    except BadAnswer as error:  # of a text that was compared with and without HTTP
        print(f"a request is lost: {error}", file=sys.stderr)
        return 1
    benchmark.report(options, result)
    return 1 if result["num_lost"] else 0


if __name__ == "__main__":
    sys.exit(main())
