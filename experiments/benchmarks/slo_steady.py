"""A steady load of two tiers, at real nodes that draft and that do not (`slo.py`)."""

import argparse
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from experiments.benchmarks.load import held_out_texts
from experiments.benchmarks.nodes.workers import TARGET, DraftWorker, Served, Wanted, cluster, serve_all
from experiments.harness import benchmark
from experiments.simulation.texts import target_texts
from goodspeed.embedded.prompts import NUM_DOMAINS
from goodspeed.engine import checkpoints
from goodspeed.engine.tokenizing.text import encode_prompt
from goodspeed.slo.objectives import Objectives
from goodspeed.wire.fields import MAX_DRAFT

TIERS = ("urgent", "patient")
PATIENCE = 3.0
"""The patient tier's times over the urgent one's."""

WAYS = ("plain", "drafts")
WANTED = {"urgent_attainment": 1.3, "patient_goodput": 0.9}


class Comparison:
    """All ways in turn, and the texts of each by tier."""

    def __init__(self, workers: Mapping[str, Sequence[DraftWorker]], num_urgent: int, tightness: float) -> None:
        """workers: of each way: the texts of the other way must not be in their histories."""
        self.workers = workers
        self.num_urgent = num_urgent
        self.tightness = tightness
        self.plain: list[float] = []  # TPOTs of all texts so far that plain decoding wrote
        self.tpot_s: dict[str, float] = {}
        self.served: dict[str, dict[str, list[Served]]] = {way: {tier: [] for tier in TIERS} for way in WAYS}

    def run(self, rows: Sequence[Sequence[Sequence[Wanted]]]) -> None:
        """rows: of each repetition what every draft node is asked for; the first repetition warms up."""
        for repetition, wanted in enumerate(rows):
            self.tpot_s = self._tiers()
            for way in WAYS if repetition % 2 else reversed(WAYS):
                self._serve(way, wanted, counts=repetition > 0)

    def _tiers(self) -> dict[str, float]:
        """TPOT that each tier asks for in a repetition; none before plain decoding was timed."""
        if not self.plain:
            return {}
        urgent = self.tightness * statistics.median(self.plain)
        return {"urgent": urgent, "patient": PATIENCE * urgent}

    def _serve(self, way: str, wanted: Sequence[Sequence[Wanted]], *, counts: bool) -> None:
        longest = 0 if way == "plain" else MAX_DRAFT
        asked = [
            [replace(one, max_draft=longest, slo=self._slo(number)) for one in own] for number, own in enumerate(wanted)
        ]
        _, served = serve_all(self.workers[way], asked)
        for number, own in enumerate(served):
            self.served[way][self._tier(number)] += own if counts else []
        tpots = [one.tpot_s for own in served for one in own]
        self.plain += tpots if way == "plain" else []
        benchmark.note(f"{way}: median TPOT {1000 * statistics.median(tpots):.1f} ms")

    def _slo(self, number: int) -> Objectives | None:
        tpot_s = self.tpot_s.get(self._tier(number))
        return None if tpot_s is None else Objectives(tpot_s=tpot_s, tpot_window=0)

    def _tier(self, number: int) -> str:
        return TIERS[0] if number < self.num_urgent else TIERS[1]

    def result(self) -> dict[str, Any]:
        attainment = self._each(lambda own: statistics.fmean(one.outcome == "attained" for one in own))
        goodput = self._each(lambda own: sum(len(one.tokens) for one in own) / sum(one.seconds for one in own))
        plain = attainment["plain"]["urgent"]
        return {
            "tpot_ms": {tier: 1000 * tpot_s for tier, tpot_s in self.tpot_s.items()},
            "median_tpot_ms": self._each(lambda own: 1000 * statistics.median(one.tpot_s for one in own)),
            "attainment": attainment,
            "drafted": self._each(lambda own: total(one.drafted for one in own)),  # and verified, by what drafted them
            "accepted": self._each(lambda own: total(one.accepted for one in own)),
            "goodput_tokens_s": goodput,  # of one draft node
            "urgent_attainment": attainment["drafts"]["urgent"] / plain if plain else None,
            "patient_goodput": goodput["drafts"]["patient"] / goodput["plain"]["patient"],
            "wanted": WANTED,
        }

    def _each(self, figure: Callable[[Sequence[Served]], Any]) -> dict[str, dict[str, Any]]:
        """A figure of the texts of each way and tier."""
        return {way: {tier: figure(own) for tier, own in tiers.items()} for way, tiers in self.served.items()}


def total(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for one in counts:
        found.update(one)
    return dict(found)


def texts(options: argparse.Namespace) -> list[list[list[Wanted]]]:
    """Requests to each draft node, `[repetition][node][turn]`; each node begins with another domain."""
    tokenizer = checkpoints.load_tokenizer(TARGET)
    found = []
    for row in held_out_texts.measured(options.repetitions + 1):
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


def earlier_texts(options: argparse.Namespace) -> list[Wanted]:
    """Other texts of each domain than those that are asked for, as prompts of which one token follows."""
    rows = held_out_texts.earlier(options.earlier, options.repetitions + 1)
    prompts = [prompt for row in rows for prompt in row]
    written = target_texts.write_after(prompts, [options.temperature], options.tokens)
    return [Wanted([*one.prompt, *one.written][:-1], 1, options.temperature, seed=0, max_draft=0) for one in written]


def measure(options: argparse.Namespace) -> dict[str, Any]:
    models = [options.draft_model] * options.clients * len(WAYS)
    benchmark.note(f"the target writes {options.earlier} other texts of each domain")
    earlier = earlier_texts(options)
    with cluster(models, [], ["--history=node"], pin=True) as workers:
        own = {way: workers[number :: len(WAYS)] for number, way in enumerate(WAYS)}
        serve_all(own["drafts"], [earlier] * options.clients)
        comparison = Comparison(own, options.urgent, options.tightness)
        comparison.run(texts(options))
    return comparison.result()


def show(result: dict[str, Any]) -> None:
    for tier in TIERS:
        print(f"{tier}: TPOT {result['tpot_ms'][tier]:.1f} ms")
        for way in WAYS:
            attained, goodput = result["attainment"][way][tier], result["goodput_tokens_s"][way][tier]
            median_ms = result["median_tpot_ms"][way][tier]
            drafted, accepted = result["drafted"][way][tier], result["accepted"][way][tier]
            told = ", ".join(f"{source} {accepted.get(source, 0)} of {number}" for source, number in drafted.items())
            print(
                f"  {way:<6} attainment {attained:.2f}, median TPOT {median_ms:.1f} ms, {goodput:.1f} tokens/s each"
                f"; accepted of drafted: {told or 'nothing drafted'}"
            )
    ratio = result["urgent_attainment"]
    print(f"urgent attainment, drafts over plain: {'no text of plain is in time' if ratio is None else f'{ratio:.2f}'}")
    print(f"patient goodput, drafts over plain: {result['patient_goodput']:.2f}   (wanted: {WANTED})")
