"""Serving over HTTP: waiting and writing times at rising request rates.

Streamed completions arrive at random (Poisson, from a seed) at two draft nodes in turn (one with --quick), each a
process; their prompts are of all domains, their texts of one length (nothing ends early). The same arrivals are served
with speculation and, as `goodspeed: {"speculate": false}` asks, by plain decoding of the same target. Times count from
when a request was due: *first* to its first text, *per token* from there to its last, *gap* between two pieces of text
(a piece is one token or more). A request that is not answered completely is lost; if any is, the exit status is 1. The
load generator shares the machine's cores with the nodes; its CPU time is told apart.

It takes about a minute on two cores; about 15 s with --quick.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from experiments.benchmarks.nodes.http_load import Address, Answer, BadAnswer, Sent, poisson, send_all
from experiments.benchmarks.nodes.processes import http_nodes
from experiments.harness import benchmark
from goodspeed.embedded import prompts

DRAFT_MODELS = ("tiny-draft-s", "tiny-draft-m")
MODES = {"speculative": True, "plain": False}
TIMES = {"first_s": "first", "per_token_s": "per token", "gap_s": "gap"}


@dataclass(frozen=True)
class Plan:
    num_draft_nodes: int
    rates: tuple[float, ...]  # requests a second, all draft nodes together
    duration_s: float  # of each rate, in each mode
    num_tokens: int  # of each text


FULL = Plan(2, (2.0, 4.0, 8.0), 6.0, 48)
QUICK = Plan(1, (2.0,), 1.5, 16)


@dataclass(frozen=True)
class Text:
    """A request for one text, which does not end before `max_tokens`."""

    prompt: str
    max_tokens: int
    temperature: float
    seed: int
    speculate: bool  # False: the target alone decodes, token by token

    def body(self) -> dict[str, Any]:
        body = asdict(self)
        return {"ignore_eos": True, "goodspeed": {"speculate": body.pop("speculate")}, **body}


def texts(count: int, num_tokens: int, *, speculate: bool) -> list[Text]:
    """Returns requests for prompts of all domains in turn, each with its seed: both modes write the same texts."""
    lines = prompts.load()
    return [Text(lines[i % len(lines)].prompt, num_tokens, 1.0, i, speculate) for i in range(count)]


async def sweep(addresses: Sequence[Address], plan: Plan, options: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for seed, rate in enumerate(plan.rates):
        due = poisson(rate, plan.duration_s, seed)
        for mode, speculate in MODES.items():
            row = await serve(addresses, texts(len(due), plan.num_tokens, speculate=speculate), due)
            rows.append({"mode": mode, "rate": rate, **row})
            show(rows[-1], options)
    return rows


async def serve(addresses: Sequence[Address], wanted: Sequence[Text], due: Sequence[float]) -> dict[str, Any]:
    began, cpu_s = time.perf_counter(), time.process_time()
    sent = await send_all(addresses, [text.body() for text in wanted], due)
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


async def run(plan: Plan, options: argparse.Namespace) -> dict[str, Any]:
    models = [DRAFT_MODELS[number % 2] for number in range(plan.num_draft_nodes)]
    drafts = [[f"--name=draft-{number}", f"--model={model}"] for number, model in enumerate(models)]
    async with http_nodes(drafts) as nodes:
        benchmark.say(options, HEADER)
        rows = await sweep(list(map(Address.of, nodes.urls)), plan, options)
    return {
        "benchmark": "serving",
        "plan": asdict(plan),
        "wanted": {"num_lost": 0},
        "num_lost": sum(row["num_lost"] for row in rows),
        "load_generator_cpu_s": sum(row["load_generator_cpu_s"] for row in rows),
        "rows": rows,
    }


def main() -> int:
    options = benchmark.parser("serving", __doc__, "one draft node, one rate, fewer and shorter texts").parse_args()
    result = asyncio.run(run(QUICK if options.quick else FULL, options))
    benchmark.report(options, result)
    return 1 if result["num_lost"] else 0


if __name__ == "__main__":
    sys.exit(main())
