"""The paper's hardware that is not at hand, emulated live: what drafting brings there, beside what is simulated.

Real daemons, sockets, models and texts, but every forward pass takes as long as Qwen3-14B's on an H100, or as that of a
0.6B or 1.7B draft model on an L4: a setting of `table1`, with costs computed from datasheets. Everything is --factor
times slower than there, so that the real pass fits into the emulated one; a pass that does not is counted, and more
than 1 % of those fail the run. So figures are ratios only. What is not emulated is the network: messages take their
real time, which is next to nothing beside that.

*default*: GoodSpeed's defaults, but with `table1`'s C. *none*: the same without drafts. *paper*: --preset paper.
*fixed*: --policy fixed. One and eight clients, several texts each, one after the other; with T = 1 the same texts are
then simulated. Speeds are measured in three ways, live and simulated alike: *own*, the sum of the clients' own, as in
`table1`; *until_last*, of all until the last client is done; *all_active*, until the first one is. Ratios are medians
over repetitions that have other texts and in which all ways take turns.

It takes about 17 minutes on two cores; about 30 s with --quick, at sizes at which its figures mean nothing.
"""

import argparse
import contextlib
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, product
from typing import Any

from experiments.benchmarks.load.as_simulated import FAMILY, SETTING, WAYS, Delivered, Way, measures, simulate, wanted
from experiments.benchmarks.load.ways import DRAFTS, TARGET
from experiments.benchmarks.nodes.emulating import Emulation, emulation
from experiments.benchmarks.nodes.workers import DraftWorker, Served, Wanted, cluster, serve_all
from experiments.harness import benchmark
from experiments.simulation.record import record
from experiments.simulation.texts import proposals, target_texts
from experiments.simulation.texts.proposals import Title
from goodspeed.embedded import prompts
from goodspeed.engine.torch import checkpoints
from goodspeed.wire.fields import MAX_DRAFT

MOST_LATE = 0.01
"""Largest share of the verify nodes' passes, or of the draft nodes', that may really take longer than emulated."""

RECORDED = 1.0
"""Temperature of the recorded texts, which are simulated."""

RATIOS = {"ratio_1": (1, "none"), "ratio_8": (8, "none"), "over_paper": (8, "paper"), "over_fixed": (8, "fixed")}
"""The default's speed over that of another way, by clients."""

MEASURES = ("own", "until_last", "all_active")
MEASURE = "own"

Speeds = dict[tuple[int, str], list[dict[str, float]]]
"""`measures` by number of clients and way, for each repetition."""


@contextlib.contextmanager
def all_nodes(ways: Mapping[str, Way], options: argparse.Namespace, hardware: Emulation) -> Iterator[dict[str, Any]]:
    """Yields the draft nodes of each way."""
    models = [DRAFTS[SETTING.models[number % len(SETTING.models)]] for number in range(options.clients)]
    found: dict[Any, list[DraftWorker]] = {}
    with contextlib.ExitStack() as running:
        for way in ways.values():
            if way.nodes not in found:
                verify = [f"--budget={SETTING.budget}", *way.verify]
                found[way.nodes] = running.enter_context(cluster(models, verify, way.draft, before=hardware.words))
        yield {name: found[way.nodes] for name, way in ways.items()}


class Live:
    """Texts that real nodes write, and how many of them differ between ways."""

    def __init__(
        self, nodes: Mapping[str, Sequence[DraftWorker]], options: argparse.Namespace, recordings: str
    ) -> None:
        """recordings: file of the recorded texts, whose prompts are asked for."""
        self.nodes = nodes
        self.options = options
        self.recordings = recordings
        self.num_different = 0
        self._known: dict[tuple[int, ...], list[int]] = {}  # text by seed and prompt

    def serve(self, name: str, num_clients: int, seed: int) -> list[Delivered]:
        way = WAYS[name]
        texts = wanted(num_clients, self.options.turns, seed, self.recordings)
        num_tokens, temperature = self.options.tokens, self.options.temperature
        max_draft = MAX_DRAFT if way.drafts else 0
        asked = [[Wanted(one.ids, num_tokens, temperature, one.seed, max_draft) for one in own] for own in texts]
        _, served = serve_all(self.nodes[name][:num_clients], asked)
        if way.is_exact:
            for one, text in zip(chain(*asked), chain(*served), strict=True):
                self.num_different += self._known.setdefault((one.seed, *one.prompt), text.tokens) != text.tokens
        return [one_after_another(own) for own in served]


def one_after_another(served: Sequence[Served]) -> Delivered:
    """A client's tokens, by seconds since its first text began."""
    began, delivered = 0.0, []
    for text in served:
        delivered += [(began + at, number) for at, number in text.delivered]
        began += text.seconds
    return delivered


@contextlib.contextmanager
def recorded(options: argparse.Namespace) -> Iterator[str]:
    """Yields a file of what the embedded draft models propose for the texts that the nodes are asked for."""
    target, *drafts = (checkpoints.load(name) for name in (TARGET, *DRAFTS))
    chosen = prompts.load()[: prompts.NUM_DOMAINS if options.quick else None]
    benchmark.note("recording what the draft models propose")
    asked = target_texts.asked(target, chosen, [RECORDED])
    texts = record(target, dict(zip(DRAFTS, drafts, strict=True)), asked, options.tokens)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/embedded.jsonl.gz"
        proposals.save(Title(proposals.VERSION, TARGET, DRAFTS, options.tokens), list(long_enough(texts)), path)
        yield path


def long_enough(texts: Sequence[proposals.Text]) -> Iterator[proposals.Text]:
    """Yields the texts of each domain that do not end before they have all tokens; its longest one if all do."""
    for domain in sorted({text.domain for text in texts}):
        own = [text for text in texts if text.domain == domain]
        yield from [text for text in own if not text.ended] or [max(own, key=lambda text: text.num_tokens)]


def run(options: argparse.Namespace) -> dict[str, Any]:
    ways = {name: WAYS[name] for name in options.ways}
    draft_costs = [FAMILY.draft_costs[SETTING.models[n % len(SETTING.models)]] for n in range(options.clients)]
    live: Speeds = defaultdict(list)
    simulated: Speeds = defaultdict(list)
    with (
        recorded(options) as recordings,
        emulation(FAMILY.round_cost, draft_costs, options.factor) as hardware,
        all_nodes(ways, options, hardware) as nodes,
    ):
        began, asking = time.monotonic(), Live(nodes, options, recordings)
        for seed in range(options.repetitions):
            for num_clients, name in product(sorted({1, options.clients}), benchmark.in_turn(ways, seed)):
                live[num_clients, name].append(measures(asking.serve(name, num_clients, seed)))
                if options.temperature == RECORDED:
                    expected = simulate(ways[name], num_clients, options.turns, options.tokens, seed, recordings)
                    simulated[num_clients, name].append(measures(expected))
                tell(options, seed, num_clients, name, live, simulated)
        late = hardware.late(began)
    found = ratios(live, options.clients)
    return {
        "benchmark": "emulated",
        **{name: by_measure[MEASURE] for name, by_measure in found.items()},
        "simulated": {name: one[MEASURE] for name, one in ratios(simulated, options.clients).items()},
        "by_measure": {"live": found, "simulated": ratios(simulated, options.clients)},
        "share_late": max(num / max(1, num_passes) for num, num_passes in late.values()),
        "late": late,
        "num_different": asking.num_different,
        "temperature": options.temperature,
        "factor": options.factor,
        "num_clients": options.clients,
    }


def tell(
    options: argparse.Namespace, repetition: int, num_clients: int, name: str, live: Speeds, simulated: Speeds
) -> None:
    what = f"{live[num_clients, name][-1][MEASURE]:.1f} tokens/s"
    if theirs := simulated.get((num_clients, name)):
        ours = options.factor * live[num_clients, name][-1][MEASURE]
        what = f"{ours / theirs[-1][MEASURE]:.2f} times the simulated speed"
    print(f"repetition {repetition + 1} of {options.repetitions}: {num_clients}, {name}: {what}", file=sys.stderr)


def ratios(measured: Speeds, most_clients: int) -> dict[str, dict[str, float]]:
    """Each of RATIOS whose ways were measured, by measure. most_clients: stands for eight."""
    found = {}
    for ratio, (number, other) in RATIOS.items():
        num_clients = 1 if number == 1 else most_clients
        ours, theirs = measured.get((num_clients, "default")), measured.get((num_clients, other))
        if ours and theirs:
            found[ratio] = {
                measure: benchmark.median_ratio([one[measure] for one in ours], [one[measure] for one in theirs])
                for measure in MEASURES
            }
    return found


def show(options: argparse.Namespace, found: Mapping[str, Any]) -> None:
    few = "" if options.clients == 8 else f", with {options.clients} clients instead of 8"
    what = f"{SETTING.family}, C = {SETTING.budget}, T = {options.temperature:g}"
    benchmark.say(options, f"{what}, time dilated {options.factor:g} times{few}")
    benchmark.say(options, f"{'':<22}" + "".join(f"{f'{one}: live, simulated':>30}" for one in MEASURES))
    for name, live in found["by_measure"]["live"].items():
        simulated = found["by_measure"]["simulated"].get(name)
        cells = (f"{live[one]:.2f}, " + (f"{simulated[one]:.2f}" if simulated else "-") for one in MEASURES)
        benchmark.say(options, f"{name:<22}" + "".join(f"{cell:>30}" for cell in cells))
    late = ", ".join(f"{kind} nodes {num} of {num_passes}" for kind, (num, num_passes) in found["late"].items())
    benchmark.say(options, f"passes later than emulated: {late}; texts that differ: {found['num_different']}")


def parse() -> argparse.Namespace:
    parser = benchmark.parser("emulated", __doc__, "one client instead of eight, one short text, --factor 2")
    parser.add_argument("--factor", type=float, default=12.0, help="how much slower than there (default 12)")
    parser.add_argument(
        "--temperature", type=float, default=RECORDED, help="0: live only, as the recorded texts are of 1 (default 1)"
    )
    parser.add_argument("--repetitions", type=int, default=3, help="default 3")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), help="default: all")
    parser.set_defaults(clients=SETTING.num_clients, tokens=48, turns=4)
    options = parser.parse_args()
    if options.quick:
        options.factor, options.tokens, options.turns, options.repetitions, options.clients = 2.0, 8, 1, 1, 1
        options.ways = ["default", "none", "paper"]
    return options


def main() -> int:
    options = parse()
    found = run(options)
    show(options, found)
    benchmark.report(options, found)
    if found["share_late"] > MOST_LATE and not options.quick:
        share, factor = f"{found['share_late']:.1%}", options.factor
        what = f"{share} of one kind of node's passes really took longer than emulated, more than {MOST_LATE:.0%}"
        print(f"emulated: {what}; give a larger --factor than {factor:g}, or a quieter machine", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
