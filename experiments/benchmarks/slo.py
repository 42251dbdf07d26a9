"""Requests of two tiers in the bursts of a recorded coding service, at real nodes with promises and without.

Their times are those of the recorded trace, stretched or squeezed to make for the rate. Each is for a text of 16 to 48
tokens, and asks for one of two tiers, half of them for *urgent* and half for *patient*; `otherwise` is `best_effort`.
At the start plain decoding writes --open texts at once. The median TPOT of these and five times their median TTFT are
what urgent asks for, and patient asks for three times that. In a steady stream that is as dense as these texts were,
all could be urgent and in time; --overload times as many requests come. Four draft nodes without models; the ways take
turns, with the same arrivals:

- *none*: nothing is promised; what texts are owed comes first.
- *dp*: the same, and the set of requests is promised that is worth most and can be kept.

Attainment counts from the moment at which a text was due; goodput is the tokens of texts in time a second, until the
last is done; medians of the repetitions. Wanted: 0.95 of what is promised attained. Every text is compared with what
the target alone writes; the exit status is 1 if one differs.

It takes about 13 minutes on two cores; about 30 s with --quick.
"""

import argparse
import statistics
import sys
import urllib.request
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from random import Random
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from experiments.benchmarks.nodes.processes import free_port
from experiments.benchmarks.nodes.workers import DraftWorker, Served, Wanted, cluster, serve_all
from experiments.harness import benchmark
from experiments.simulation.open_loop.traffic import rescaled
from experiments.simulation.texts import target_texts
from experiments.simulation.texts.target_texts import TargetText
from goodspeed.embedded import prompts
from goodspeed.engine.model_files.names import NO_MODEL
from goodspeed.slo.objectives import Objectives, parse_tiers

TRACE, BEGIN_S = "azure_llm_2023_code", 1786.0
LENGTHS = (16, 48)  # of texts, in tokens
LEAD_S = 0.5
"""The first request comes so long after the draft nodes are told of all, so that everybody has read its list."""

TTFTS = 5.0
"""The urgent tier's TTFT over plain decoding's; SLOs-Serve gives a prompt five times the time to read it alone."""

TIERS = ("urgent", "patient")
PATIENCE = 3.0
"""The patient tier's times over the urgent one's."""

WAYS = ("none", "dp")
WANTED = {"promised_attainment": 0.95}
MEASURES = {
    "promised": "promised",
    "promised_attainment": "promised in time",
    "attainment": "in time",
    **{f"{tier}_attainment": f"{tier} in time" for tier in TIERS},
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
    times: Sequence[float], texts: Sequence[TargetText], tiers: Mapping[str, Objectives], num_nodes: int, seed: int
) -> list[Asked]:
    """A request at each of the times, dealt out to the draft nodes; text, length and tier are drawn from a seed."""
    random = Random(seed)
    return [
        asked(
            number % num_nodes, random.choice(texts), random.randint(*LENGTHS), at_s, tiers[random.choice(list(tiers))]
        )
        for number, at_s in enumerate(times)
    ]


def asked(node: int, text: TargetText, length: int, at_s: float, slo: Objectives | None, **changes: Any) -> Asked:
    """One request for the first tokens of this text. changes: what else is different in `Wanted`."""
    sampling = text.sampling
    wanted = Wanted(
        list(text.prompt), length, sampling.temperature, sampling.seed, slo=slo, due_s=LEAD_S + at_s, **changes
    )
    return Asked(node, wanted, list(text.written[:length]))


@dataclass(frozen=True)
class Plain:
    """Times of plain decoding on this machine, with several texts open."""

    ttft_s: float
    tpot_s: float
    requests_per_s: float

    def tiers(self) -> list[str]:
        """The tiers as the verify node is told them."""
        factors = dict(zip(TIERS, (1.0, PATIENCE), strict=True))
        return [
            f"{tier}:ttft={1000 * factor * TTFTS * self.ttft_s:.3f}ms,tpot={1000 * factor * self.tpot_s:.3f}ms"
            for tier, factor in factors.items()
        ]


class Comparison:
    """Both ways in turn, and every text of theirs against the target's own."""

    def __init__(self) -> None:
        self.found: dict[str, list[tuple[Asked, Served]]] = {way: [] for way in WAYS}
        self.rows: dict[str, list[dict[str, float | None]]] = {way: [] for way in WAYS}
        self.num_texts = 0
        self.num_different = 0

    def serve(self, workers: Sequence[DraftWorker], asked: Sequence[Asked]) -> tuple[float, list[tuple[Asked, Served]]]:
        """Has each draft node serve its own; returns the seconds, and what came of each request."""
        own = [[one for one in asked if one.node == number] for number in range(len(workers))]
        seconds, served = serve_all(workers, [[one.wanted for one in each] for each in own])
        pairs = [pair for each, done in zip(own, served, strict=True) for pair in zip(each, done, strict=True)]
        self.num_texts += len(pairs)
        self.num_different += sum(done.tokens != one.expected for one, done in pairs)
        return seconds, pairs

    def compare(self, workers: Mapping[str, Sequence[DraftWorker]], asked: Sequence[Asked], repetition: int) -> None:
        for way in WAYS if repetition % 2 else WAYS[::-1]:
            seconds, pairs = self.serve(workers[way], asked)
            row = measures(pairs, seconds - LEAD_S)
            self.rows[way].append(row)
            self.found[way] += pairs
            benchmark.note(f"{way}: " + ", ".join(f"{what} {told(row[key])}" for key, what in MEASURES.items()))

    def medians(self, way: str) -> dict[str, float | None]:
        found = {key: [row[key] for row in self.rows[way] if row[key] is not None] for key in MEASURES}
        return {key: statistics.median(values) if values else None for key, values in found.items()}  # type: ignore[type-var]


def measures(pairs: Sequence[tuple[Asked, Served]], seconds: float) -> dict[str, float | None]:
    """Figures of one way in one repetition; None where there is nothing to take a share of."""
    attained = [done for _, done in pairs if done.outcome == "attained"]

    def attainment(counts: Callable[[Asked, Served], bool]) -> float | None:
        chosen = [done.outcome == "attained" for one, done in pairs if counts(one, done)]
        return statistics.fmean(chosen) if chosen else None

    return {
        "promised": statistics.fmean(bool(done.promised) for _, done in pairs),
        "promised_attainment": attainment(lambda _, done: done.promised is True),
        "attainment": attainment(lambda _one, _done: True),
        **{f"{tier}_attainment": attainment(lambda one, _, tier=tier: one.tier == tier) for tier in TIERS},  # type: ignore[misc]
        "best_effort_attainment": attainment(lambda _, done: not done.promised),
        "goodput_tokens_s": sum(len(done.tokens) for done in attained) / seconds,
    }


def calibrate(
    comparison: Comparison, workers: Sequence[DraftWorker], texts: Sequence[TargetText], options: argparse.Namespace
) -> Plain:
    """Times plain decoding with --open texts at once; the first turn warms up."""
    length = sum(LENGTHS) // 2
    turns: list[tuple[float, list[Served]]] = []
    for turn in range(PLAIN_TURNS + 1):
        chosen = [texts[(turn * options.open + place) % len(texts)] for place in range(options.open)]
        wanted = [
            asked(place % len(workers), text, length, 0.0, None, max_draft=0) for place, text in enumerate(chosen)
        ]
        _, pairs = comparison.serve(workers, wanted)
        turns.append((max(done.seconds for _, done in pairs), [done for _, done in pairs]))
    served = [done for _, own in turns[1:] for done in own]
    return Plain(
        statistics.median(done.ttft_s for done in served),
        statistics.median(done.tpot_s for done in served),
        options.open / statistics.median(seconds for seconds, _ in turns[1:]),
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
    """Both ways with as many arrivals as --overload says, and the figures of each."""
    benchmark.note(f"the target writes {options.texts} texts")
    written = target_texts.write_after(prompts.load()[: options.texts], [options.temperature], LENGTHS[1])
    texts = [text for text in written if len(text.written) == LENGTHS[1]]  # those that do not end before
    comparison, port = Comparison(), free_port()
    models = [NO_MODEL] * options.clients
    draft, shared = ["--history=off", f"--max-sessions={MAX_SESSIONS}"], [f"--max-sessions={16 * MAX_SESSIONS}"]
    with ExitStack() as nodes:
        none = nodes.enter_context(cluster(models, ["--admission=none", *shared], draft, pin=True))
        plain = calibrate(comparison, none, texts, options)
        told_tiers = plain.tiers()
        tiers = parse_tiers(told_tiers)
        benchmark.note(
            f"plain decoding, {options.open} at once: {plain.requests_per_s:.1f} texts/s; {', '.join(told_tiers)}"
        )
        own = ["--admission=dp", f"--http=127.0.0.1:{port}", *(f"--slo-tier={one}" for one in told_tiers)]
        dp = nodes.enter_context(cluster(models, [*own, *shared], draft, pin=True))
        times = rescaled(TRACE, options.overload * plain.requests_per_s, options.duration_s, BEGIN_S)
        for way in (none, dp):  # warms up
            comparison.serve(way, requests(times[: len(times) // 4 + 1], texts, tiers, len(models), 0))
        before = broken_promises(port)
        for repetition in range(1, options.repetitions + 1):
            asking = requests(times, texts, tiers, len(models), repetition)
            comparison.compare({"none": none, "dp": dp}, asking, repetition)
        broken = broken_promises(port) - before
    return result(comparison, plain, tiers, broken)


def result(
    comparison: Comparison, plain: Plain, tiers: Mapping[str, Objectives], broken: Counter[str]
) -> dict[str, Any]:
    promised = [done for _, done in comparison.found["dp"] if done.promised]
    return {
        "tiers_ms": {
            name: {"ttft": 1000 * (slo.ttft_s or 0.0), "tpot": 1000 * (slo.tpot_s or 0.0)}
            for name, slo in tiers.items()
        },
        "plain_requests_per_s": plain.requests_per_s,
        "requests": len(comparison.found["dp"]),
        "medians": {way: comparison.medians(way) for way in WAYS},
        "repetitions": comparison.rows,
        "promises": len(promised),
        "promises_by_outcome": dict(Counter(done.outcome for done in promised)),
        "broken_by_cause": dict(broken),
        "num_texts": comparison.num_texts,
        "num_different": comparison.num_different,
        "wanted": WANTED,
    }


def show(found: dict[str, Any]) -> None:
    for tier, limits in found["tiers_ms"].items():
        print(f"{tier}: TTFT {limits['ttft']:.0f} ms, TPOT {limits['tpot']:.1f} ms")
    print(f"{'':<20}" + "".join(f"{way:>8}" for way in WAYS))
    for key, what in MEASURES.items():
        print(f"{what:<20}" + "".join(f"{told(found['medians'][way][key]):>8}" for way in WAYS))
    causes = ", ".join(f"{cause} {number}" for cause, number in found["broken_by_cause"].items())
    outcomes = ", ".join(f"{outcome} {number}" for outcome, number in found["promises_by_outcome"].items())
    print(f"{found['promises']} promises of {found['requests']} requests: {outcomes or 'none'}   (wanted: {WANTED})")
    print(f"broken at the verify node, by cause: {causes or 'none'}")
    print(f"{found['num_texts']} texts, of which {found['num_different']} differ from the target's own")


def told(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}" if value <= 1.0 else f"{value:.0f}"


def parse() -> argparse.Namespace:
    parser = benchmark.parser("slo", __doc__, "one draft node, one short repetition")
    parser.add_argument("--repetitions", type=int, default=5, help="after one that warms up (default 5)")
    parser.add_argument("--temperature", type=float, default=0.0, help="default: 0")
    parser.add_argument("--duration-s", type=float, default=45.0, help="of a repetition (default 45)")
    parser.add_argument(
        "--overload", type=float, default=1.75, help="requests over what plain decoding serves (default 1.75)"
    )
    parser.add_argument("--open", type=int, default=16, help="texts at once that urgent is taken from (default 16)")
    parser.add_argument("--texts", type=int, default=64, help="prompts to choose from, 128 at most (default 64)")
    parser.set_defaults(clients=4)
    options = parser.parse_args()
    if options.quick:
        options.repetitions, options.clients, options.duration_s, options.open, options.texts = 1, 1, 1.0, 4, 4
    return options


def main() -> int:
    options = parse()
    found = measure(options)
    show(found)
    benchmark.report(options, {"benchmark": "slo", **found})
    return 1 if found["num_different"] else 0


if __name__ == "__main__":
    sys.exit(main())
