"""Real chats of three kinds with service levels, at real nodes: a mix like AdaServe's, and what promises bring.

Code is 60 % of the requests, chats and summaries 20 % each, as in AdaServe's figure 8. Their TPOT may be 1.2, 2 and 6
times that of a text alone (the paper: 1.2 times, 50 ms and 150 ms). All are to have their first token within five times
the median TTFT of --open texts that plain decoding writes at once, which only an overload exceeds. Requests come in the
bursts of a recorded coding service, each for a text of 16 to 48 tokens. How many come, says each of --loads, as a
multiple of the rate at which plain decoding writes --open texts at once. The verify node has a core to itself, and four
draft nodes share the others. The ways take turns, with the same arrivals:

- *plain*: nobody drafts, and nothing is promised.
- *drafts*: nothing is promised; what texts are owed comes first.
- *dp*: the same, and the set of requests is promised that is worth most and can be kept.

Attainment counts from the moment at which a text was due; goodput is the tokens of texts in time a second, until the
last is done; medians of the repetitions. Wanted: 0.99 of what is promised attained. Every text is compared with what
the target alone writes; the exit status is 1 if one differs.

It takes about 17 minutes on two cores; about half a minute with --quick.
"""

import argparse
import statistics
import sys
import urllib.request
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

from prometheus_client.parser import text_string_to_metric_families

from experiments.benchmarks.nodes.processes import free_port
from experiments.benchmarks.nodes.workers import DraftWorker, Served, Wanted, cluster, serve_all
from experiments.harness import benchmark
from experiments.harness.experiment import HERE
from experiments.simulation.open_loop.traffic import rescaled
from experiments.simulation.texts import target_texts
from experiments.simulation.texts.target_texts import TargetText
from goodspeed.engine import engines
from goodspeed.errors import GoodSpeedError, PromptError
from goodspeed.slo.objectives import Objectives, parse_tiers
from goodspeed.wire.fields import MAX_DRAFT
from goodspeed.wire.messages import Sampling
from training.chats import encoded
from training.chats import load as load_chats

Row: TypeAlias = dict[str, float | None]

TRACE, BEGIN_S = "azure_llm_2023_code", 1786.0
LENGTHS = (16, 48)  # of texts, in tokens
LEAD_S = 0.5
"""The first request comes so long after the draft nodes are told of all, so that everybody has read its list."""

TTFTS = 5.0
"""TTFT over plain decoding's with several texts at once."""


@dataclass(frozen=True)
class Kind:
    """One kind of request."""

    share: float  # of all requests
    tpot: float  # times that of a text alone


KINDS = {"coding": Kind(0.6, 1.2), "chat": Kind(0.2, 2.0), "summarization": Kind(0.2, 6.0)}
"""By the domain of the prompts."""

WAYS = {"plain": ("none", 0), "drafts": ("none", MAX_DRAFT), "dp": ("dp", MAX_DRAFT)}
"""Admission policy of the verify node, and the most tokens of a draft."""

WANTED = {"promised_attainment": 0.99}
MEASURES = {
    "promised": "promised",
    **{f"{kind}_promised": f"{kind} promised" for kind in KINDS},
    "promised_attainment": "promised in time",
    "attainment": "in time",
    **{f"{kind}_attainment": f"{kind} in time" for kind in KINDS},
    "best_effort_attainment": "best effort in time",
    "goodput_tokens_s": "tokens/s in time",
}
MAX_SESSIONS = 256
PLAIN_TURNS = 3  # of plain decoding, after one that warms up


@dataclass(frozen=True)
class Asked:
    """One request: whom it is for, what it is, and what the target alone writes."""

    node: int
    wanted: Wanted
    expected: list[int]

    @property
    def tier(self) -> str:
        return self.wanted.slo.tier if self.wanted.slo is not None else ""


def requests(
    times: Sequence[float],
    texts: Mapping[str, Sequence[TargetText]],
    tiers: Mapping[str, Objectives],
    num_nodes: int,
    seed: int,
) -> list[Asked]:
    """A request at each of the times, dealt out to the draft nodes; kind, text and length are drawn from a seed.

    texts, tiers: by kind.
    """
    random, shares = Random(seed), [kind.share for kind in KINDS.values()]
    found = []
    for number, at_s in enumerate(times):
        [kind] = random.choices(list(KINDS), shares)
        found.append(asked(number % num_nodes, random.choice(texts[kind]), random.randint(*LENGTHS), at_s, tiers[kind]))
    return found


def asked(node: int, text: TargetText, length: int, at_s: float, slo: Objectives | None) -> Asked:
    """One request for the first tokens of this text, which comes at this time."""
    sampling = text.sampling
    wanted = Wanted(list(text.prompt), length, sampling.temperature, sampling.seed, slo=slo, due_s=LEAD_S + at_s)
    return Asked(node, wanted, list(text.written[:length]))


@dataclass(frozen=True)
class Plain:
    """Times of plain decoding on this machine."""

    ttft_s: float  # with several texts at once
    tpot_s: float  # of a text alone
    requests_per_s: float  # with several texts at once

    def tiers(self) -> list[str]:
        """The tiers as the verify node is told them."""
        ttft_ms, tpot_ms = 1000 * TTFTS * self.ttft_s, 1000 * self.tpot_s
        return [f"{name}:ttft={ttft_ms:.3f}ms,tpot={kind.tpot * tpot_ms:.3f}ms" for name, kind in KINDS.items()]


class Comparison:
    """All ways in turn, and every text of theirs against the target's own."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, list[Row]]] = {}  # by load and way
        self.promised: list[Served] = []
        self.num_texts = 0
        self.num_different = 0

    def serve(
        self, workers: Sequence[DraftWorker], asked: Sequence[Asked], max_draft: int
    ) -> tuple[float, list[tuple[Asked, Served]]]:
        """Has each draft node serve its own; returns the seconds, and what came of each request."""
        own = [[one for one in asked if one.node == number] for number in range(len(workers))]
        wanted = [[replace(one.wanted, max_draft=max_draft) for one in each] for each in own]
        seconds, served = serve_all(workers, wanted)
        pairs = [pair for each, done in zip(own, served, strict=True) for pair in zip(each, done, strict=True)]
        self.num_texts += len(pairs)
        self.num_different += sum(done.tokens != one.expected for one, done in pairs)
        return seconds, pairs

    def compare(
        self, workers: Mapping[str, Sequence[DraftWorker]], asked: Sequence[Asked], load: str, repetition: int
    ) -> None:
        """workers: by admission policy."""
        for way in list(WAYS) if repetition % 2 else list(WAYS)[::-1]:
            admission, max_draft = WAYS[way]
            seconds, pairs = self.serve(workers[admission], asked, max_draft)
            row = measures(pairs, seconds - LEAD_S)
            self.rows.setdefault(load, {}).setdefault(way, []).append(row)
            self.promised += [done for _, done in pairs if done.promised]
            measured = ", ".join(f"{what} {told(row[key])}" for key, what in MEASURES.items())
            benchmark.note(f"load {load}, {way}: {measured}")

    def medians(self, load: str, way: str) -> Row:
        rows = self.rows[load][way]
        found = {key: [row[key] for row in rows if row[key] is not None] for key in MEASURES}
        return {key: statistics.median(values) if values else None for key, values in found.items()}  # type: ignore[type-var]


def measures(pairs: Sequence[tuple[Asked, Served]], seconds: float) -> Row:
    """Figures of one way in one repetition; None where there is nothing to take a share of."""

    def share(counts: Callable[[Served], bool], among: Sequence[Served]) -> float | None:
        return statistics.fmean(map(counts, among)) if among else None

    def attained(done: Served) -> bool:
        return done.outcome == "attained"

    def promised(done: Served) -> bool:
        return bool(done.promised)

    every = [done for _, done in pairs]
    by_kind = {kind: [done for one, done in pairs if one.tier == kind] for kind in KINDS}
    return {
        "promised": share(promised, every),
        **{f"{kind}_promised": share(promised, own) for kind, own in by_kind.items()},
        "promised_attainment": share(attained, [done for done in every if promised(done)]),
        "attainment": share(attained, every),
        **{f"{kind}_attainment": share(attained, own) for kind, own in by_kind.items()},
        "best_effort_attainment": share(attained, [done for done in every if not promised(done)]),
        "goodput_tokens_s": sum(len(done.tokens) for done in every if attained(done)) / seconds,
    }


def written(options: argparse.Namespace) -> dict[str, list[TargetText]]:
    """Returns what the target alone writes after the prompts of each kind; texts that end soon are left out."""
    checkpoint, found = engines.load(options.target, num_threads=1), {}
    for kind, chats in load_chats(options.prompts, list(KINDS)).items():
        fitting = enumerate(encoded(chats, checkpoint.tokenizer)[: options.texts])
        texts = [TargetText(kind, Sampling(options.temperature, seed=seed), tuple(ids)) for seed, ids in fitting]
        own = target_texts.answers(checkpoint, texts, LENGTHS[1]) if texts else ()
        found[kind] = [text for text in own if len(text.written) == LENGTHS[1]]
        if not found[kind]:
            raise PromptError(f"{options.prompts}: no answer of {kind} has {LENGTHS[1]} tokens; give other prompts")
    return found


def calibrate(
    comparison: Comparison,
    workers: Sequence[DraftWorker],
    texts: Mapping[str, Sequence[TargetText]],
    options: argparse.Namespace,
) -> Plain:
    """Times plain decoding of a text alone, and of --open texts at once; the first turn of each warms up."""
    length, every = sum(LENGTHS) // 2, [text for own in texts.values() for text in own]

    def turns(number: int) -> list[list[Served]]:
        """So many texts at once, in each turn after the first."""
        found = []
        for turn in range(PLAIN_TURNS + 1):
            chosen = [every[(turn * number + place) % len(every)] for place in range(number)]
            asking = [asked(place % len(workers), text, length, 0.0, None) for place, text in enumerate(chosen)]
            _, pairs = comparison.serve(workers, asking, 0)
            found.append([done for _, done in pairs])
        return found[1:]

    together = turns(options.open)
    return Plain(
        statistics.median(done.ttft_s for own in together for done in own),
        statistics.median(done.tpot_s for own in turns(1) for done in own),
        options.open / statistics.median(max(done.seconds for done in own) for own in together),
    )


def broken_promises(port: int) -> Counter[str]:
    """Texts of broken promises by cause so far, as the verify node tells them."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        page = answer.read().decode()
    found: Counter[str] = Counter()
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if sample.name == "goodspeed_slo_broken_promises_total":
                found[sample.labels["cause"]] += int(sample.value)
    return found


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All ways with as many arrivals as each of --loads says, and the figures of each."""
    benchmark.note(f"{options.target} writes the answers")
    texts = written(options)
    comparison, port = Comparison(), free_port()
    models = [options.draft] * options.clients
    draft = ["--history=off", f"--max-sessions={MAX_SESSIONS}"]
    shared = [f"--max-sessions={16 * MAX_SESSIONS}", "--threads=1"]
    with ExitStack() as stack:
        start = partial(cluster, target=options.target, pin=True)
        none = stack.enter_context(start(models, ["--admission=none", *shared], draft))
        plain = calibrate(comparison, none, texts, options)
        told_tiers = plain.tiers()
        tiers = parse_tiers(told_tiers)
        rate = f"{plain.requests_per_s:.1f} texts/s"
        benchmark.note(f"plain decoding, {options.open} at once: {rate}; {', '.join(told_tiers)}")
        own = ["--admission=dp", f"--http=127.0.0.1:{port}", *(f"--slo-tier={one}" for one in told_tiers)]
        nodes = {"none": none, "dp": stack.enter_context(start(models, [*own, *shared], draft))}

        def asking(load: float, seed: int, duration_s: float) -> list[Asked]:
            rate = max(load * plain.requests_per_s, 1 / duration_s)  # one at least, however slow the machine
            times = rescaled(TRACE, rate, duration_s, BEGIN_S)
            return requests(times, texts, tiers, len(models), seed)

        for workers in nodes.values():  # warms up
            comparison.serve(workers, asking(max(options.loads), 0, options.duration_s / 4), MAX_DRAFT)
        before = broken_promises(port)
        for repetition in range(1, options.repetitions + 1):
            for load in options.loads:
                comparison.compare(nodes, asking(load, repetition, options.duration_s), f"{load:g}", repetition)
        broken = broken_promises(port) - before
    return result(comparison, plain, tiers, broken)


def result(
    comparison: Comparison, plain: Plain, tiers: Mapping[str, Objectives], broken: Counter[str]
) -> dict[str, Any]:
    return {
        "tiers_ms": {
            name: {"ttft": 1000 * (slo.ttft_s or 0.0), "tpot": 1000 * (slo.tpot_s or 0.0)}
            for name, slo in tiers.items()
        },
        "plain_requests_per_s": plain.requests_per_s,
        "medians": {load: {way: comparison.medians(load, way) for way in WAYS} for load in comparison.rows},
        "repetitions": comparison.rows,
        "promises": len(comparison.promised),
        "promises_by_outcome": dict(Counter(done.outcome for done in comparison.promised)),
        "broken_by_cause": dict(broken),
        "num_texts": comparison.num_texts,
        "num_different": comparison.num_different,
        "wanted": WANTED,
    }


def show(found: dict[str, Any]) -> None:
    for tier, limits in found["tiers_ms"].items():
        print(f"{tier}: TTFT {limits['ttft']:.0f} ms, TPOT {limits['tpot']:.1f} ms")
    columns = [(load, way) for load in found["medians"] for way in WAYS]
    print(f"{'load':<24}" + "".join(f"{load:>8}" for load, _ in columns))
    print(f"{'':<24}" + "".join(f"{way:>8}" for _, way in columns))
    for key, what in MEASURES.items():
        print(f"{what:<24}" + "".join(f"{told(found['medians'][load][way][key]):>8}" for load, way in columns))
    causes = ", ".join(f"{cause} {number}" for cause, number in found["broken_by_cause"].items())
    outcomes = ", ".join(f"{outcome} {number}" for outcome, number in found["promises_by_outcome"].items())
    print(f"{found['promises']} promises: {outcomes or 'none'}   (wanted: {WANTED})")
    print(f"broken at the verify node, by cause: {causes or 'none'}")
    print(f"{found['num_texts']} texts, of which {found['num_different']} differ from the target's own")


def told(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}" if value <= 1.0 else f"{value:.0f}"


def parse() -> argparse.Namespace:
    parser = benchmark.parser("slo", __doc__, "one draft node, one load, one short repetition")
    parser.add_argument("--repetitions", type=int, default=2, help="after one that warms up (default 2)")
    parser.add_argument("--temperature", type=float, default=0.0, help="default: 0")
    parser.add_argument("--duration-s", type=float, default=45.0, help="of the arrivals of a repetition (default 45)")
    parser.add_argument("--target", default="smollm2", help="model of the verify node (default smollm2)")
    parser.add_argument("--draft", default="smollm2-draft", help="of each draft node (default smollm2-draft)")
    loads = "requests a second, as multiples of what plain decoding serves (default 0.1 0.3 1)"
    parser.add_argument("--loads", type=float, nargs="+", default=[0.1, 0.3, 1.0], metavar="NUMBER", help=loads)
    parser.add_argument(
        "--open", type=int, default=16, help="texts at once that rate and TTFT are taken from (default 16)"
    )
    parser.add_argument("--texts", type=int, default=32, help="prompts of each kind, at most (default 32)")
    parser.add_argument(
        "--prompts",
        type=Path,
        default=HERE / "prompts",
        help="folder with a file KIND.jsonl of chats for each kind (default: the shipped prompts)",
    )
    parser.set_defaults(clients=4)
    options = parser.parse_args()
    if options.quick:
        options.repetitions, options.clients, options.loads = 1, 1, [1.0]
        options.duration_s, options.open, options.texts = 1.0, 4, 4
    return options


def main() -> int:
    options = parse()
    try:
        found = measure(options)
    except GoodSpeedError as error:
        sys.exit(str(error))
    show(found)
    benchmark.report(options, {"benchmark": "slo", **found})
    return 1 if found["num_different"] else 0


if __name__ == "__main__":
    sys.exit(main())
