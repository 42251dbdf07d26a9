"""Fleets of verify nodes: the capacity of 1 to 64 replicas, and what sending requests on is worth.

Requests, service levels and rounds are those of `slos_serve`, and so is what a capacity is: the highest rate at which
at most a tenth of all requests miss their level, found by bisection. Every client has a home replica; what is declined
there goes on to another, by what replicas have told of themselves (`fits`), to the next one as in SLOs-Serve's paper
(`ring`), or nowhere (`none`). Then what a million draft nodes would take, computed from assumptions, from a measured
capacity, and from the sizes of real messages.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from random import Random
from statistics import fmean
from typing import Any, Literal

import msgspec
from matplotlib.figure import Figure

from experiments.harness import styles
from experiments.harness.experiment import Finding, Outcome, Results, new_figure, run
from experiments.harness.processes import each
from experiments.simulation.arrivals import Arrival
from experiments.simulation.open_loop.fleet import Done, Routing, Text, serve_fleet
from experiments.simulation.open_loop.threshold import Tried, highest
from experiments.simulation.open_loop.traffic import window
from experiments.slos_serve import ALLOWED, MOST_PER_S, OURS, POLICIES, Base, Row
from goodspeed.fair.estimators import jain_index
from goodspeed.fleet.replicas import MAX_OWED, MAX_REPLICAS, Load, Owed, Pace, Replica
from goodspeed.wire import codec
from goodspeed.wire.handshake import Heartbeat, Sibling

PER_S = 100
"""Rates are tried in hundredths of a request per second and replica."""

CAPACITY = "capacity of the fleet"
FITS, NONE = "fits", "none"
"""The default routing, and that of a fleet whose requests stay at home."""

NOTES = ["A capacity is in requests/s of the whole fleet; what is known of other replicas is up to a second old."]


@dataclass(frozen=True)
class Study:
    """Fleets whose capacities are compared."""

    scenario: str
    replicas: list[int]
    routings: list[str]
    homes: Literal["chance", "turn"]  # of clients: drawn, or one after the other, which is the paper's round robin
    windows: Literal["own", "same"]  # each replica's users have a window of the trace; or all fleets have the same one
    window_s: float
    num_windows: int  # of all runs of a fleet together, at least one for each replica; of "same", the number of runs
    requests_per_s: float  # a guess at one replica's capacity


@dataclass(frozen=True)
class Fairness:
    """The fleet of which it is asked how much each client gets."""

    scenario: str
    replicas: int
    clients: int  # for each replica
    window_s: float
    share: float  # of one replica's capacity: the load


@dataclass(frozen=True)
class Region:
    """Assumptions about very many draft nodes."""

    draft_nodes: int
    regions: int
    requests_per_s: float  # of each draft node
    reserve: float  # share of the replicas' capacity that is left free
    reports_s: float  # how often replicas report, and pull the table
    told_s: float  # how often draft nodes are told of the table at most


@dataclass(frozen=True)
class Config(Base):
    """One section of `configs/fleet.toml`."""

    studies: dict[str, Study]
    fairness: Fairness
    million: Region
    max_hops: int
    hop_s: float
    told_every_s: float


@dataclass(frozen=True)
class Cell:
    """The setting of one capacity."""

    study: str
    replicas: int
    routing: str


def experiment(config: Config) -> Outcome:
    order = sorted(cells(config), key=lambda cell: -cell.replicas)  # the longest first, and no core idles
    measured = dict(zip(order, each("capacities", partial(measure, config), order, config.processes), strict=True))
    rows = [measured[cell][0] for cell in cells(config)]
    curves = [load for cell in cells(config) for load in measured[cell][1]]
    told = facts(rows)
    load_per_s = config.fairness.share * told["replicas"][1]
    fair = each("fairness", partial(fairness, config, load_per_s), [FITS, NONE], config.processes)
    largest = max((row for row in rows if row["study"] == CURVE), key=lambda row: int(row["replicas"]))
    told["fairness"] = {row["routing"]: row for row in fair}
    told["million"] = million(config.million, largest["capacity"] / largest["replicas"], largest["hops"])
    return Outcome(rows=rows, curves=curves, findings=findings(told), facts=told, notes=NOTES)


def cells(config: Config) -> Iterator[Cell]:
    """One replica sends nothing on, so it is looked at once."""
    for name, study in config.studies.items():
        for number in study.replicas:
            yield from (Cell(name, number, routing) for routing in study.routings[: 1 if number == 1 else None])


def measure(config: Config, cell: Cell) -> tuple[Row, list[Row]]:
    """The capacity of a fleet, with what it made of that load (or of the lowest one); and every load tried."""
    tried = Tried(partial(load, config, cell), PER_S)
    guess, most = round(PER_S * config.studies[cell.study].requests_per_s), round(PER_S * MOST_PER_S)
    number = highest(tried.violations, ALLOWED, start=guess, most=most, ratio=config.ratio)
    capacity = {"capacity": cell.replicas * number / PER_S}
    return tried.best(number) | capacity, tried.rows


# -- one load ----------------------------------------------------------------------------------------------------------


def load(config: Config, cell: Cell, requests_per_s: float) -> Row:
    """The row of a fleet with so many requests per second for each of its replicas, over all its runs."""
    study, replicas = config.studies[cell.study], cell.replicas
    num_runs = study.num_windows if study.windows == "same" else max(1, study.num_windows // replicas)
    texts: list[Text] = []
    for number in range(num_runs):
        coming = arrivals(config, study, replicas, number, replicas * requests_per_s)
        homes = homes_of(study.homes, replicas, replicas * config.clients, config.seed + number)
        texts += served(config, cell.routing, replicas, homes, coming).texts
    key = {"study": cell.study, "scenario": study.scenario, "replicas": replicas, "routing": cell.routing}
    return key | {"requests_per_s": replicas * requests_per_s} | measures(texts)


def served(config: Config, routing: str, num_replicas: int, homes: list[int], coming: list[Arrival]) -> Done:
    return serve_fleet(
        replace(config.world, **POLICIES[OURS]),
        coming,
        config.seed,
        num_replicas,
        homes,
        Routing(None if routing == NONE else routing, config.max_hops, config.hop_s, config.told_every_s),
        pool_tokens=config.pool_tokens,
    )


def arrivals(config: Config, study: Study, replicas: int, number: int, requests_per_s: float) -> list[Arrival]:
    """The requests of a run of this number. With windows of their own, those of all replicas lie over each other."""
    scenario = config.scenarios[study.scenario]
    own = range(number * replicas, (number + 1) * replicas) if study.windows == "own" else [number]
    recorded = partial(window, scenario.trace, window_s=study.window_s)
    [begin_s] = scenario.begins_s
    times = sorted(at_s for place in own for at_s in recorded(begin_s=begin_s + place * study.window_s))
    return config.squeezed(study.scenario, times, study.window_s, requests_per_s, number)


def homes_of(kind: str, replicas: int, clients: int, seed: int) -> list[int]:
    """Each client's replica."""
    random = Random(seed)
    return [random.randrange(replicas) if kind == "chance" else client % replicas for client in range(clients)]


def measures(texts: list[Text]) -> Row:
    promised = [text.served for text in texts if text.served.kept.promised]
    return {
        "requests": len(texts),
        "violations": 1.0 - fmean(text.served.attained for text in texts),
        "promised": len(promised) / len(texts),
        "promised_attained": fmean(text.attained for text in promised) if promised else None,
        "sent_on": fmean(text.hops > 0 for text in texts),
        "hops": fmean(text.hops for text in texts),
    }


def fairness(config: Config, requests_per_s: float, routing: str) -> Row:
    """Returns how equal the goodput of equal clients is, whose homes are drawn. requests_per_s: of a replica."""
    asked = config.fairness
    study = Study(asked.scenario, [], [], "chance", "own", asked.window_s, 1, 0.0)
    coming = arrivals(config, study, asked.replicas, 0, asked.replicas * requests_per_s)
    homes = homes_of("chance", asked.replicas, asked.replicas * asked.clients, config.seed)
    done = served(config, routing, asked.replicas, homes, coming)
    rates = goodputs(done, len(homes))
    key = {"routing": routing, "replicas": asked.replicas, "clients": len(homes)}
    return key | {"jain": jain_index(rates), "worst": min(rates) / fmean(rates)} | measures(done.texts)


def goodputs(done: Done, num_clients: int) -> list[float]:
    """Tokens per second of each client's texts that were in time."""
    tokens = [0] * num_clients
    for text in done.texts:
        tokens[text.client] += text.served.num_tokens * text.served.attained
    seconds = max(service.seconds for service in done.services)
    return [number / seconds for number in tokens]


# -- a million draft nodes ---------------------------------------------------------------------------------------------

KEY = "k" * 40
FINGERPRINT = "f" * 64
ENDPOINT = "tcp://verify-{:02}.region.example.com:5555"
MAX_BYTES = 1 << 20


def replica(number: int, num_owed: int = 8) -> Replica:
    """A replica with about as much to do as in the middle of a busy day: four TPOTs, and some prompts owed."""
    paces = tuple(Pace(tpot_s, 50) for tpot_s in (0.03, 0.05, 0.1, 0.2))
    owed = tuple(Owed(0.123456789 * place, 700 + place, 0.1, 60) for place in range(num_owed))
    numbers = Load(
        told_at=1.8e9 + 0.123456,
        boot_id="0" * 32,
        target_fingerprint=FINGERPRINT,
        num_sessions=230,
        max_sessions=1024,
        num_pages=2687,
        free_pages=412,
        context_tokens=180_000,
        round_s=0.0412345,
        fixed_s=0.0248,
        token_s=6.878e-5,
        usual_error=0.0212345,
        promises=True,
        paces=paces,
        owed=owed,
    )
    return Replica(f"verify-{number:02}", ENDPOINT.format(number), KEY, numbers)


def sizes() -> dict[str, int]:
    """Bytes of a report and of a table of MAX_REPLICAS in msgpack, and of what a draft node is told.

    Of the table also the size that it has when every replica owes as many prompts as can be told.
    """
    encode = msgspec.msgpack.Encoder().encode
    usual, most = ([replica(number, owed) for number in range(MAX_REPLICAS)] for owed in (8, MAX_OWED))
    siblings = tuple(Sibling(one.endpoint, KEY, FINGERPRINT, expected_s=0.0412) for one in usual)
    return {
        "report_bytes": len(encode(usual[0])),
        "table_bytes": len(encode(usual)),
        "largest_table_bytes": len(encode(most)),
        "told_bytes": len(codec.encode(Heartbeat(bytes(8), siblings), MAX_BYTES)),
    }


def million(region: Region, capacity: float, hops: float) -> dict[str, Any]:
    """Returns how many replicas and fleets it takes, and bytes per second.

    A flat table of all replicas is compared with fleets of MAX_REPLICAS that know only their own. capacity: requests/s
    of one replica of a fleet of that size. hops: of a request in it, on average.
    """
    measured = sizes()
    asked = region.draft_nodes * region.requests_per_s
    replicas = ceil(asked / (capacity * (1.0 - region.reserve)))
    by_region = ceil(replicas / region.regions)
    fleets = ceil(by_region / MAX_REPLICAS)
    in_fleet = ceil(by_region / fleets)
    entry, sibling = measured["table_bytes"] / MAX_REPLICAS, measured["told_bytes"] / MAX_REPLICAS
    nodes = region.draft_nodes / replicas

    def costs(known: int, of: int) -> dict[str, float]:
        """known: replicas in a table. of: replicas that pull it from one place."""
        return {
            "replica_bytes_per_s": (measured["report_bytes"] + known * entry) / region.reports_s,
            "keeper_bytes_per_s": of * (measured["report_bytes"] + known * entry) / region.reports_s,
            "told_bytes_per_s": nodes * known * sibling / region.told_s,
            "draft_node_bytes_per_s": known * sibling / region.told_s,
        }

    return measured | {
        "draft_nodes": region.draft_nodes,
        "regions": region.regions,
        "requests_per_s": asked,
        "replica_capacity": capacity,
        "replicas": replicas,
        "replicas_per_region": by_region,
        "fleets_per_region": fleets,
        "replicas_per_fleet": in_fleet,
        "draft_nodes_per_replica": nodes,
        "redirects_per_s": asked * hops,
        "redirects_per_s_and_fleet": asked * hops / (fleets * region.regions),
        "fleet": costs(in_fleet, in_fleet),
        "flat": costs(replicas, replicas),
        "fleets_table_bytes_per_s": fleets * entry / region.reports_s,
    }


# -- the paper's claims beside ours ------------------------------------------------------------------------------------

MOST_ERROR = 0.1
PAPER = {"chatbot": {2: 2.18, 3: 3.36, 4: 4.61}, "coder": {4: 6.2}}
"""Capacity of so many replicas over that of one, by the paper on SLOs-Serve."""

CURVE = "replicas"
"""The study of which the picture is."""


def facts(rows: Sequence[Row]) -> dict[str, Any]:
    """The capacities by study, routing and number of replicas."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    for row in rows:
        found.setdefault(row["study"], {}).setdefault(row["routing"], {})[row["replicas"]] = row["capacity"]
    curve = found[CURVE][FITS]
    told: dict[str, Any] = {"capacity": found, "replicas": curve, "linear_error": linear_error(curve)}
    told["per_replica"] = {number: capacity / number for number, capacity in curve.items()}
    for study in PAPER:
        if study in found:
            told[study] = {routing: ratios(own, found[study]) for routing, own in found[study].items()}
    told["policies"] = {study: own for study, own in found.items() if study not in (CURVE, *PAPER)}
    return told


def linear_error(capacities: dict[int, float]) -> float:
    """Returns by how much capacities differ at most from that many times one replica's, relative to it."""
    return max(abs(capacity / (number * capacities[1]) - 1.0) for number, capacity in capacities.items())


def ratios(own: dict[int, float], study: dict[str, dict[int, float]]) -> dict[int, float]:
    """Capacities over a single replica's, which knows no routing."""
    alone = next(found[1] for found in study.values() if 1 in found)
    return {number: capacity / alone for number, capacity in own.items() if number > 1}


def findings(told: dict[str, Any]) -> list[Finding]:
    found = [Finding(f"{number} replicas: requests/s of each", each) for number, each in told["per_replica"].items()]
    found.append(Finding.at_most("farthest from linear", told["linear_error"], MOST_ERROR))
    for study, papers in PAPER.items():
        for routing, own in told.get(study, {}).items():
            for number, ratio in own.items():
                what, paper = f"{study}, {routing}: {number} replicas over one", papers.get(number)
                if paper is not None and routing == FITS:
                    found.append(Finding.at_least(what, ratio, paper, paper))
                else:
                    found.append(Finding(what, ratio, paper))
    for study, by_routing in told["policies"].items():
        for routing, own in by_routing.items():
            found += [Finding(f"{study}, {routing}: {n} replicas, requests/s", value) for n, value in own.items()]
    for routing, row in told["fairness"].items():
        found.append(Finding(f"{routing}: Jain's index of {row['clients']} clients", row["jain"]))
        found.append(Finding(f"{routing}: the worst client's goodput over the mean", row["worst"]))
    million = told["million"]
    found.append(Finding(f"{million['draft_nodes']} draft nodes: replicas", million["replicas"]))
    return found


def draw(_: Config, results: Results) -> Figure:
    """The capacity over the number of replicas, beside a linear one."""
    figure = new_figure(6.4, 4.8)
    axes = figure.subplots()
    own = sorted((row for row in results.rows if row["study"] == CURVE), key=lambda row: int(row["replicas"]))
    numbers, found = [row["replicas"] for row in own], [row["capacity"] for row in own]
    axes.plot(numbers, [number * found[0] for number in numbers], color="black", linewidth=0.8, label="linear")
    axes.plot(numbers, found, label=CAPACITY, **styles.curve(0))
    axes.set(xscale="log", yscale="log", xlabel="replicas", ylabel="requests/s with at most 10 % missed")
    axes.set_xticks(numbers, [str(number) for number in numbers], minor=False)
    axes.minorticks_off()
    return styles.finish(figure, "The capacity of a fleet grows in proportion to its replicas", CAPACITY)


if __name__ == "__main__":
    sys.exit(run("fleet", __doc__ or "", experiment, draw, Config))
