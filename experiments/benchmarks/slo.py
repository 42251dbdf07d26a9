"""How many texts of two service levels are in time under overload, with drafts and without: eight draft nodes, one run.

Three of the draft nodes ask for the tier *urgent*, the others for *patient*. What is urgent has to come quicker than
the target alone can write with eight texts open: its TPOT is --tightness times the median of what plain decoding took
in the first repetition, which warms up. The patient tier's is three times as long. Every draft node writes one text
after the other, so that eight are always open; the same texts in all ways. The ways take turns in every repetition:

- *plain*: nothing is drafted.
- *all*: the paper's rounds; lengths are assigned by `gradient`, and drafts verified whole (`--selection none`).
- *odds*: drafted tokens that are worth their time (`--selection odds`, `--policy gradient`).
- *slo*: the same, but what texts are owed comes first (`--policy slo`).

Attainment is the share of a tier's texts that were in time, at their draft nodes; goodput, all its tokens per second.
Wanted: `slo` at least 1.3 times plain's attainment of the urgent tier, and 0.9 of plain's goodput of the other one.
It takes about 5 minutes on two cores, and 30 s with --quick.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from experiments.benchmarks import held_out_texts
from experiments.benchmarks.workers import TARGET, DraftWorker, Served, Wanted, cluster, serve_all
from goodspeed.embedded.prompts import NUM_DOMAINS
from goodspeed.engine import checkpoints
from goodspeed.engine.tokenizing.text import encode_prompt
from goodspeed.wire.messages import MAX_DRAFT

TIERS = ("urgent", "patient")
PATIENCE = 3.0
"""The patient tier's TPOT over the urgent one's."""

VERIFY = {
    "plain": ["--policy=gradient"],
    "all": ["--policy=gradient", "--selection=none"],
    "odds": ["--policy=gradient"],
    "slo": ["--policy=slo"],
}
"""The ways, with the verify node's options. Plain decoding needs no verify node of its own."""

SHARED = {"plain": "odds"}
WANTED = {"urgent_attainment": 1.3, "patient_goodput": 0.9}


@dataclass
class Seen:
    """What one way did for one tier."""

    tpots: list[float] = field(default_factory=list)  # of every text
    num_tokens: int = 0
    seconds: float = 0.0

    def attainment(self, tpot_s: float) -> float:
        return sum(tpot <= tpot_s for tpot in self.tpots) / len(self.tpots)

    @property
    def goodput(self) -> float:
        return self.num_tokens / self.seconds


class Comparison:
    """All ways in turn."""

    def __init__(self, workers: dict[str, list[DraftWorker]], num_urgent: int, tightness: float) -> None:
        self.workers = workers
        self.num_urgent = num_urgent
        self.tightness = tightness
        self.tpot_s: dict[str, float] = {}  # of each tier; none before it is known what plain decoding takes
        self.seen = {way: {tier: Seen() for tier in TIERS} for way in workers}

    def run(self, rows: Sequence[Sequence[Sequence[Wanted]]]) -> None:
        """rows: of each repetition what every draft node is asked for; the first repetition warms up."""
        for repetition, wanted in enumerate(rows):
            names = list(self.workers)
            first = repetition % len(names) if repetition else 0
            for way in names[first:] + names[:first]:
                self._serve(way, wanted, counts=repetition > 0)

    def _serve(self, way: str, wanted: Sequence[Sequence[Wanted]], *, counts: bool) -> None:
        longest = 0 if way == "plain" else MAX_DRAFT
        asked = [
            [replace(one, max_draft=longest, tpot_s=self.tpot_s.get(self._tier(number))) for one in own]
            for number, own in enumerate(wanted)
        ]
        _, served = serve_all(self.workers[way], asked)
        if not self.tpot_s:
            typical = statistics.median(one.tpot_s for own in served for one in own)
            self.tpot_s = {"urgent": self.tightness * typical, "patient": PATIENCE * self.tightness * typical}
        for number, own in enumerate(served):
            if counts:
                self._note(self.seen[way][self._tier(number)], own)
        say(f"{way}: median TPOT {1000 * statistics.median(one.tpot_s for own in served for one in own):.1f} ms")

    def _note(self, seen: Seen, served: Sequence[Served]) -> None:
        seen.tpots += [one.tpot_s for one in served]
        seen.num_tokens += sum(len(one.tokens) for one in served)
        seen.seconds += sum(one.seconds for one in served)

    def _tier(self, number: int) -> str:
        return TIERS[0] if number < self.num_urgent else TIERS[1]

    def result(self) -> dict[str, Any]:
        attainment = {
            way: {tier: seen.attainment(self.tpot_s[tier]) for tier, seen in tiers.items()}
            for way, tiers in self.seen.items()
        }
        goodput = {way: {tier: seen.goodput for tier, seen in tiers.items()} for way, tiers in self.seen.items()}
        plain = attainment["plain"]["urgent"]
        return {
            "tpot_ms": {tier: 1000 * tpot_s for tier, tpot_s in self.tpot_s.items()},
            "median_tpot_ms": {
                way: {tier: 1000 * statistics.median(seen.tpots) for tier, seen in tiers.items()}
                for way, tiers in self.seen.items()
            },
            "attainment": attainment,
            "goodput_tokens_s": goodput,  # of one draft node
            "urgent_attainment": attainment["slo"]["urgent"] / plain if plain else None,
            "patient_goodput": goodput["slo"]["patient"] / goodput["plain"]["patient"],
            "wanted": WANTED,
        }


def texts(options: argparse.Namespace) -> list[list[list[Wanted]]]:
    """Of each repetition: what each draft node is asked for, each beginning with another domain."""
    tokenizer = checkpoints.load_tokenizer(TARGET)
    rows = held_out_texts.measured(options.repetitions + 1)
    found = []
    for row in rows:
        ids = [encode_prompt(tokenizer, one.prompt) for one in row]
        found.append(
            [
                [
                    Wanted(ids[at], options.tokens, options.temperature, row[at].seed)
                    for at in ((number + turn) % NUM_DOMAINS for turn in range(options.turns))
                ]
                for number in range(options.clients)
            ]
        )
    return found


def measure(options: argparse.Namespace) -> dict[str, Any]:
    tiers = ["--slo-tier=urgent:tpot=1s", "--slo-tier=patient:tpot=1s"]
    models = [options.draft_model] * options.clients
    with ExitStack() as nodes:
        workers = {
            way: nodes.enter_context(cluster(models, [*verify, *tiers], ["--history=off"], pin=True))
            for way, verify in VERIFY.items()
            if way not in SHARED
        }
        ways = {way: workers[SHARED.get(way, way)] for way in VERIFY}
        comparison = Comparison(ways, options.urgent, options.tightness)
        comparison.run(texts(options))
    return comparison.result()


def show(result: dict[str, Any]) -> None:
    for tier in TIERS:
        print(f"{tier}: TPOT {result['tpot_ms'][tier]:.1f} ms")
        for way in VERIFY:
            attained, goodput = result["attainment"][way][tier], result["goodput_tokens_s"][way][tier]
            median_ms = result["median_tpot_ms"][way][tier]
            print(f"  {way:<6} attainment {attained:.2f}, median TPOT {median_ms:.1f} ms, {goodput:.1f} tokens/s each")
    ratio = result["urgent_attainment"]
    print(f"urgent attainment, slo over plain: {'no text of plain is in time' if ratio is None else f'{ratio:.2f}'}")
    print(f"patient goodput, slo over plain: {result['patient_goodput']:.2f}   (wanted: {WANTED})")


def say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m experiments.benchmarks.slo", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two draft nodes, one short repetition")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--tokens", type=int, default=64, help="length of every text (default 64)")
    parser.add_argument("--turns", type=int, default=3, help="texts of each draft node (default 3)")
    parser.add_argument("--repetitions", type=int, default=5, help="after one that warms up (default 5)")
    parser.add_argument("--temperature", type=float, default=1.0, help="default: 1")
    parser.add_argument("--urgent", type=int, default=3, help="draft nodes of the urgent tier (default 3)")
    parser.add_argument("--tightness", type=float, default=0.9, help="urgent TPOT over plain decoding's (default 0.9)")
    parser.add_argument("--draft-model", default="tiny-draft-s", help="default: tiny-draft-s; none: n-grams only")
    parser.set_defaults(clients=NUM_DOMAINS)
    options = parser.parse_args()
    if options.quick:
        options.tokens, options.turns, options.repetitions, options.clients, options.urgent = 8, 1, 1, 2, 1
    return options


def main() -> int:
    options = parse()
    result = measure(options)
    show(result)
    if options.json:
        print(json.dumps({"benchmark": "slo", **result}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
