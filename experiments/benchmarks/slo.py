"""Counts the texts of two service levels in time under overload: in a steady load with drafts and without, in bursts.

**--loads steady**: three of eight draft nodes ask for the tier *urgent*, the others for *patient*. Urgent is a TPOT of
--tightness times the median of what plain decoding has taken so far, so that about half of plain's texts are late; the
patient tier's is three times as long. Every draft node writes one text after the other, so that eight are always open;
the same texts in all ways. The draft nodes have no models, since eight models on a few cores keep each other from
working: they have a corpus of 15 other texts of each domain, which the target wrote at the same temperature. The ways
take turns:

- *plain*: nothing is drafted.
- *drafts*: what texts are owed comes first in every round, and then the drafted tokens that are worth their time.

Attainment is the share of a tier's texts that were in time, at their draft nodes; goodput, a draft node's tokens per
second. Wanted: *drafts* at least 1.3 times plain's attainment of the urgent tier, and 0.9 of its goodput of the other.

**--loads bursts**: requests come as in the recorded trace of a coding service, --overload times as many as plain
decoding serves in time (`load/bursts.py`). Four draft nodes without models; the ways take turns with the same arrivals:

- *none*: nothing is promised; what texts are owed comes first.
- *dp*: the same, and the set of requests is promised that is worth most and can be kept.

Attainment counts from the moment at which a text was due; goodput is the tokens of texts in time a second, until the
last is done; medians of the repetitions. Wanted: 0.95 of what is promised attained. Every text is compared with what
the target alone writes; the exit status is 1 if one differs.

It takes about 3 minutes on two cores, with bursts 13 more; about a minute with --quick, which has both loads.
"""

import argparse
import statistics
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from experiments.benchmarks.load import bursts, held_out_texts
from experiments.benchmarks.load.bursts import PATIENCE, TIERS, say
from experiments.benchmarks.nodes.workers import NO_MODEL, TARGET, DraftWorker, Served, Wanted, cluster, serve_all
from experiments.harness import benchmark
from experiments.simulation.texts import target_texts
from goodspeed.embedded.prompts import NUM_DOMAINS
from goodspeed.engine import checkpoints
from goodspeed.engine.tokenizing.text import encode_prompt
from goodspeed.slo.objectives import Objectives
from goodspeed.wire.fields import MAX_DRAFT

LOADS = ("steady", "bursts")
WAYS = ("plain", "drafts")
WANTED = {"urgent_attainment": 1.3, "patient_goodput": 0.9}


@dataclass
class Seen:
    """Counts of one way for one tier."""

    tpots: list[float] = field(default_factory=list)  # of every text
    num_attained: int = 0
    num_tokens: int = 0
    seconds: float = 0.0
    drafted: Counter[str] = field(default_factory=Counter)  # and verified, by what drafted them
    accepted: Counter[str] = field(default_factory=Counter)

    @property
    def attainment(self) -> float:
        return self.num_attained / len(self.tpots)

    @property
    def goodput(self) -> float:
        return self.num_tokens / self.seconds


class Comparison:
    """All ways in turn, in a steady load."""

    def __init__(self, workers: list[DraftWorker], num_urgent: int, tightness: float) -> None:
        self.workers = workers
        self.num_urgent = num_urgent
        self.tightness = tightness
        self.plain: list[float] = []  # TPOTs of all texts so far that plain decoding wrote
        self.tpot_s: dict[str, float] = {}
        self.seen = {way: {tier: Seen() for tier in TIERS} for way in WAYS}

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
        _, served = serve_all(self.workers, asked)
        for number, own in enumerate(served):
            if counts:
                self._note(self.seen[way][self._tier(number)], own)
        tpots = [one.tpot_s for own in served for one in own]
        self.plain += tpots if way == "plain" else []
        say(f"{way}: median TPOT {1000 * statistics.median(tpots):.1f} ms")

    def _note(self, seen: Seen, served: Sequence[Served]) -> None:
        for one in served:
            seen.tpots.append(one.tpot_s)
            seen.num_attained += one.outcome == "attained"
            seen.num_tokens += len(one.tokens)
            seen.seconds += one.seconds
            seen.drafted.update(one.drafted)
            seen.accepted.update(one.accepted)

    def _slo(self, number: int) -> Objectives | None:
        tpot_s = self.tpot_s.get(self._tier(number))
        return None if tpot_s is None else Objectives(tpot_s=tpot_s, tpot_window=0)

    def _tier(self, number: int) -> str:
        return TIERS[0] if number < self.num_urgent else TIERS[1]

    def result(self) -> dict[str, Any]:
        attainment = {way: {tier: seen.attainment for tier, seen in tiers.items()} for way, tiers in self.seen.items()}
        goodput = {way: {tier: seen.goodput for tier, seen in tiers.items()} for way, tiers in self.seen.items()}
        plain = attainment["plain"]["urgent"]
        return {
            "tpot_ms": {tier: 1000 * tpot_s for tier, tpot_s in self.tpot_s.items()},
            "median_tpot_ms": {
                way: {tier: 1000 * statistics.median(seen.tpots) for tier, seen in tiers.items()}
                for way, tiers in self.seen.items()
            },
            "attainment": attainment,
            "drafted": {
                way: {tier: dict(one.drafted) for tier, one in tiers.items()} for way, tiers in self.seen.items()
            },
            "accepted": {
                way: {tier: dict(one.accepted) for tier, one in tiers.items()} for way, tiers in self.seen.items()
            },
            "goodput_tokens_s": goodput,  # of one draft node
            "urgent_attainment": attainment["drafts"]["urgent"] / plain if plain else None,
            "patient_goodput": goodput["drafts"]["patient"] / goodput["plain"]["patient"],
            "wanted": WANTED,
        }


def texts(options: argparse.Namespace) -> list[list[list[Wanted]]]:
    """Requests to each draft node, `[repetition][node][turn]`; each node begins with another domain."""
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


def write_corpus(options: argparse.Namespace, folder: Path) -> None:
    """Writes files with other texts of each domain than those that are asked for."""
    tokenizer: Any = checkpoints.load_tokenizer(TARGET)
    rows = held_out_texts.earlier(options.earlier, options.repetitions + 1)
    prompts = [prompt for row in rows for prompt in row]
    for number, text in enumerate(target_texts.write_after(prompts, [options.temperature], options.tokens)):
        whole = tokenizer.decode([*text.prompt, *text.written], skip_special_tokens=True)
        (folder / f"{number}.txt").write_text(whole, "utf-8")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    models = [options.draft_model] * options.clients
    with ExitStack() as nodes:
        folder = Path(nodes.enter_context(TemporaryDirectory()))
        say(f"the target writes {options.earlier} other texts of each domain")
        write_corpus(options, folder)
        draft = ["--history=off", f"--corpus={folder}"]
        workers = nodes.enter_context(cluster(models, [], draft, pin=True))
        comparison = Comparison(workers, options.urgent, options.tightness)
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


def parse() -> argparse.Namespace:
    parser = benchmark.parser("slo", __doc__, "both loads with two draft nodes, one short repetition")
    parser.add_argument("--loads", nargs="+", choices=LOADS, help=f"default: {LOADS[0]}")
    parser.add_argument("--tokens", type=int, default=64, help="length of every steady text (default 64)")
    parser.add_argument("--turns", type=int, default=3, help="steady texts of each draft node (default 3)")
    parser.add_argument("--repetitions", type=int, default=5, help="after one that warms up (default 5)")
    parser.add_argument("--temperature", type=float, default=0.0, help="default: 0")
    parser.add_argument("--earlier", type=int, default=15, help="other texts of each domain (default 15)")
    parser.add_argument("--urgent", type=int, default=3, help="draft nodes of the urgent tier (default 3)")
    parser.add_argument("--tightness", type=float, default=1.0, help="urgent TPOT over plain decoding's (default 1)")
    parser.add_argument("--draft-model", default=NO_MODEL, help="default: none, which drafts n-grams only")
    parser.add_argument("--duration-s", type=float, default=45.0, help="of a repetition's bursts (default 45)")
    parser.add_argument(
        "--overload", type=float, default=1.75, help="bursts: requests over what plain decoding serves (default 1.75)"
    )
    parser.add_argument("--open", type=int, default=16, help="bursts: texts at once that urgent is taken from")
    parser.add_argument("--texts", type=int, default=64, help="bursts: prompts to choose from, 128 at most")
    parser.set_defaults(clients=NUM_DOMAINS)
    options = parser.parse_args()
    options.loads = options.loads or (LOADS if options.quick else LOADS[:1])
    if options.quick:
        options.tokens, options.turns, options.repetitions, options.clients, options.urgent = 8, 1, 1, 2, 1
        options.earlier, options.duration_s, options.open, options.texts = 1, 1.0, 4, 4
    return options


def main() -> int:
    options = parse()
    found: dict[str, Any] = {"benchmark": "slo"}
    if "steady" in options.loads:
        found |= (steady := measure(options))
        show(steady)
    if "bursts" in options.loads:
        found["bursts"] = bursts.measure(options)
        bursts.show(found["bursts"])
    benchmark.report(options, found)
    return 1 if found.get("bursts", {}).get("num_different") else 0


if __name__ == "__main__":
    sys.exit(main())
