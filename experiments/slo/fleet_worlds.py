"""The worlds of the experiment on fleets: whose requests come to how many replicas, and what became of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from statistics import fmean
from typing import Any, Literal, TypeAlias

from experiments.simulation.accounts import jain
from experiments.simulation.arrivals import Arrival
from experiments.simulation.open_loop.fleet import Done, Routing, Text, serve_fleet
from experiments.simulation.open_loop.traffic import window
from experiments.slo.admission_policies import OURS, POLICIES
from experiments.slo.slos_serve_worlds import Base, squeezed, world

Row: TypeAlias = dict[str, Any]

NONE = "none"
"""The routing of a fleet whose requests stay at home."""


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


def load(config: Config, cell: Cell, requests_per_s: float) -> Row:
    """The row of a fleet with so many requests per second for each of its replicas, over all its runs."""
    study = config.studies[cell.study]
    texts = [text for number in range(num_runs(study, cell)) for text in _run(config, cell, number, requests_per_s)]
    key = {"study": cell.study, "scenario": study.scenario, "replicas": cell.replicas, "routing": cell.routing}
    return key | {"requests_per_s": cell.replicas * requests_per_s} | measures(texts)


def num_runs(study: Study, cell: Cell) -> int:
    return study.num_windows if study.windows == "same" else max(1, study.num_windows // cell.replicas)


def _run(config: Config, cell: Cell, number: int, requests_per_s: float) -> list[Text]:
    study = config.studies[cell.study]
    coming = arrivals(config, study, cell.replicas, number, cell.replicas * requests_per_s)
    homes = homes_of(study.homes, cell.replicas, cell.replicas * config.clients, config.seed + number)
    return served(config, cell.routing, cell.replicas, homes, coming).texts


def served(config: Config, routing: str, num_replicas: int, homes: list[int], coming: list[Arrival]) -> Done:
    return serve_fleet(
        replace(world(config), **POLICIES[OURS]),
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
    return squeezed(config, study.scenario, times, study.window_s, requests_per_s)


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


def fairness(config: Config, routing: str, requests_per_s: float) -> Row:
    """Returns how equal the goodput of equal clients is, whose homes are drawn. requests_per_s: of a replica."""
    asked = config.fairness
    study = Study(asked.scenario, [], [], "chance", "own", asked.window_s, 1, 0.0)
    coming = arrivals(config, study, asked.replicas, 0, asked.replicas * requests_per_s)
    homes = homes_of("chance", asked.replicas, asked.replicas * asked.clients, config.seed)
    done = served(config, routing, asked.replicas, homes, coming)
    rates = list(goodputs(done, len(homes)))
    key = {"routing": routing, "replicas": asked.replicas, "clients": len(homes)}
    return key | {"jain": jain(rates), "worst": min(rates) / fmean(rates)} | measures(done.texts)


def goodputs(done: Done, num_clients: int) -> Iterator[float]:
    """Tokens per second of each client's texts that were in time."""
    tokens = [0] * num_clients
    for text in done.texts:
        tokens[text.client] += text.served.num_tokens * text.served.attained
    seconds = max(service.seconds for service in done.services)
    return (number / seconds for number in tokens)
