"""Fairness and scheduler time from 8 to 1,000,000 clients, and how fast the simulation itself is.

Fairness comes from the array path (`simulation/arrays`), which agrees exactly with the state machines (tested).
The speed of both is printed as client-rounds per second: one client taking part in one round.
"""

from __future__ import annotations

import gc
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from experiments.harness import benchmark, styles
from experiments.harness.experiment import Finding, Outcome, Results, new_figure, run
from experiments.harness.progress import parts
from experiments.simulation.arrays import rows
from experiments.simulation.arrays.probabilities import IndependentDraws
from experiments.simulation.arrays.rows import RowPolicy
from experiments.simulation.arrays.worlds import ArraySettings, Worlds
from experiments.simulation.settings import PAPER, Settings
from experiments.simulation.world import World
from goodspeed.fair.policies import ClientState, create, gradient
from goodspeed.fair.round_time import Linear

MACHINES_S = 60.0
ARRAYS_S = 300.0
MEMORY_GB = 4.0
SCHEDULING_US = {8: 100.0, 1_000: 1e3, 1_000_000: 1e6}
LISTED = 10_000  # clients beyond which only the array form is timed
MAX_DRAFT = 32
WARM_UP = 3  # rounds in which the sessions of the state machines are opened
TEXT = 300  # tokens of a text that the state machines' clients ask for

OURS = "gradient"


@dataclass(frozen=True)
class Config:
    """`experiments/configs/scale.toml`."""

    sizes: list[tuple[int, int]]  # clients, rounds
    policies: list[str]
    budget_per_client: float
    alphas: tuple[float, float]
    seed: int
    eta: float
    beta: float
    state_machines: tuple[int, int]  # clients, rounds
    arrays: list[tuple[int, int]]
    scheduling: list[tuple[int, int]]  # clients, repetitions

    def with_policy(self, name: str) -> Config:
        """The same with one more policy to compare."""
        return replace(self, policies=[*dict.fromkeys([*self.policies, name])])

    def budget(self, num_clients: int) -> int:
        return int(self.budget_per_client * num_clients)

    def rates(self, num_clients: int) -> NDArray[np.float64]:
        return np.random.default_rng(self.seed).uniform(*self.alphas, num_clients)


class Timed:
    """A policy that says how long its allocations take."""

    def __init__(self, policy: RowPolicy) -> None:
        self._policy = policy
        self.seconds: list[float] = []

    def allocate(self, *arguments: Any) -> Any:
        started = time.perf_counter()
        lengths = self._policy.allocate(*arguments)
        self.seconds.append(time.perf_counter() - started)
        return lengths


def worlds(config: Config, num_clients: int, policy: RowPolicy) -> Worlds:
    settings = ArraySettings(num_clients, config.budget(num_clients), config.eta, config.beta)
    return Worlds(settings, policy, IndependentDraws(config.rates(num_clients), [config.seed]))


def fairness(config: Config, num_clients: int, num_rounds: int, name: str) -> dict[str, Any]:
    """Runs one policy at one size, and returns its row of the table."""
    policy = Timed(rows.create(name, 1))
    world = worlds(config, num_clients, policy)
    world.run(num_rounds)
    goodput = world.num_tokens[0] / num_rounds
    return {
        "policy": name,
        "num_clients": num_clients,
        "num_rounds": num_rounds,
        "log_utility_per_client": float(np.log(goodput).mean()),
        "jain": float(goodput.sum() ** 2 / (num_clients * (goodput**2).sum())),
        "goodput": float(goodput.mean()),
        "worst_goodput": float(goodput.min()),
        "scheduler_ms": 1000 * float(np.median(policy.seconds)),
    }


def machines_speed(config: Config) -> dict[str, Any]:
    """The state machines of both nodes, with everything between them, in CPU seconds of one core."""
    num_clients, num_rounds = config.state_machines
    settings = Settings(
        num_clients=num_clients,
        num_sessions=1 + 2 * num_rounds,
        num_at_once=1,
        min_tokens=TEXT,
        max_tokens=TEXT,
        stops=0.0,
        **PAPER,
        budget=config.budget(num_clients),
        eta=config.eta,
        beta=config.beta,
        max_round_tokens=20 * num_clients,
        page_size=16,
        num_pages=40 * num_clients,
        context_len=TEXT + 100,
        max_sessions=2 * num_clients,
        alpha=tuple(config.rates(num_clients).tolist()),
        latency_s=(0.01, 0.02, 0.013),
        round_cost=Linear(fixed_s=0.03, token_s=1e-5),
        tick_s=1.0,
    )
    world = World(config.seed, settings)
    world.run_rounds(WARM_UP)
    gc.collect()
    gc.freeze()  # what is there stays there: to look through it again and again takes a tenth of the time
    started, num_before = time.process_time(), count_rounds(world)
    world.run_rounds(WARM_UP + num_rounds)
    seconds = time.process_time() - started
    gc.unfreeze()
    return speed("state machines", num_clients, num_rounds, count_rounds(world) - num_before, seconds)


def count_rounds(world: World) -> int:
    """Verdicts that clients got."""
    generations = [each for draft in world.drafts for each in (*draft.done, *draft.generations.values())]
    return sum(generation.session.statistics.num_rounds for generation in generations)


def arrays_speed(config: Config, num_clients: int, num_rounds: int) -> dict[str, Any]:
    world = worlds(config, num_clients, rows.create("gradient", 1))
    started = time.process_time()
    world.run(num_rounds)
    return speed("arrays", num_clients, num_rounds, num_clients * num_rounds, time.process_time() - started)


def speed(what: str, num_clients: int, num_rounds: int, num_client_rounds: int, seconds: float) -> dict[str, Any]:
    return {
        "what": what,
        "num_clients": num_clients,
        "num_rounds": num_rounds,
        "seconds": seconds,
        "client_rounds_per_s": num_client_rounds / seconds,
    }


def scheduling(config: Config, num_clients: int, repetitions: int) -> dict[str, Any]:
    """This thread's median CPU time of Eq. (5) for one round.

    Timed is the form that the verify node calls, with lists; beyond LISTED clients that with arrays. Goodput is 1 to 6
    tokens a round, weights are 1 or 2, drafts are MAX_DRAFT tokens at most.
    """
    random, budget = np.random.default_rng(config.seed), config.budget(num_clients)
    goodput, weight = random.uniform(1.0, 6.0, num_clients), random.choice([1.0, 2.0], num_clients)
    columns = (config.rates(num_clients), goodput, weight, np.full(num_clients, MAX_DRAFT))
    if num_clients <= LISTED:
        policy, states = create("gradient"), [ClientState(*row) for row in zip(*map(list, columns), strict=True)]
        seconds = benchmark.median_s(lambda: policy.allocate(states, budget), repetitions, warm_up=1)
    else:
        seconds = benchmark.median_s(lambda: gradient.allocate_arrays(*columns, budget), repetitions, warm_up=1)
    return {"num_clients": num_clients, "budget": budget, "cpu_us": 1e6 * seconds}


def experiment(config: Config) -> Outcome:
    times = [scheduling(config, *size) for size in config.scheduling]
    speeds = [machines_speed(config), *(arrays_speed(config, *size) for size in parts("speeds", config.arrays))]
    memory_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    cases = parts("sizes and policies", product(config.sizes, config.policies))
    table = [fairness(config, *size, name) for size, name in cases]
    findings = [*speed_findings(speeds), memory_finding(memory_gb), *scheduling_findings(times)]
    facts = {"speeds": speeds, "memory_gb": memory_gb, "scheduling": times}
    return Outcome(rows=table, findings=[*findings, *fairness_findings(table)], facts=facts)


def speed_findings(speeds: Sequence[dict[str, Any]]) -> list[Finding]:
    """Wanted are whole runs; a shorter one is judged by its speed."""
    wanted = {"state machines": 1000 * 1000 / MACHINES_S, "arrays": 1000 * 10000 / ARRAYS_S}
    return [
        Finding(
            f"{each['what']}, {each['num_clients']:,} clients x {each['num_rounds']:,} rounds: client-rounds/s",
            each["client_rounds_per_s"],
            wanted=f"at least {wanted[each['what']]:.0f}",
            reached=each["client_rounds_per_s"] >= wanted[each["what"]],
        )
        for each in speeds
    ]


def memory_finding(memory_gb: float) -> Finding:
    return Finding("memory of these, GB", memory_gb, wanted=f"at most {MEMORY_GB:g}", reached=memory_gb <= MEMORY_GB)


def scheduling_findings(times: Sequence[dict[str, Any]]) -> list[Finding]:
    findings = []
    for each in times:
        limit_us = SCHEDULING_US.get(each["num_clients"])
        what = f"{each['num_clients']:,} clients, budget {each['budget']:,}: Eq. (5), us of CPU time a round"
        wanted = {} if limit_us is None else {"wanted": f"at most {limit_us:g}", "reached": each["cpu_us"] <= limit_us}
        findings.append(Finding(what, each["cpu_us"], **wanted))
    return findings


def fairness_findings(table: Sequence[dict[str, Any]]) -> list[Finding]:
    """Log-utility a client, and what of a round's time scheduling takes."""
    findings = []
    for num_clients in dict.fromkeys(row["num_clients"] for row in table):
        of_size = {row["policy"]: row for row in table if row["num_clients"] == num_clients}
        best = max(of_size.values(), key=lambda row: row["log_utility_per_client"])
        findings += [
            Finding(
                f"{num_clients:,} clients, {name}: log-utility a client",
                row["log_utility_per_client"],
                wanted="the best of all" if name == "gradient" else "",
                reached=best["policy"] == "gradient" if name == "gradient" else None,
            )
            for name, row in of_size.items()
        ]
        findings += [
            Finding(f"{num_clients:,} clients, {name}: {what}", row[key])
            for key, what in (("jain", "Jain's index"), ("scheduler_ms", "scheduling, ms"))
            for name, row in of_size.items()
        ]
    return findings


def draw(_: Config, results: Results) -> Figure:
    """Log-utility over the number of clients."""
    figure = new_figure(7.0, 4.6)
    axes = figure.subplots()
    for name, number in styles.numbers((row["policy"] for row in results.rows), OURS).items():
        own = [row for row in results.rows if row["policy"] == name]
        values = [row["log_utility_per_client"] for row in own]
        axes.plot([row["num_clients"] for row in own], values, label=name, **styles.curve(number))
    axes.set(xscale="log", xlabel="clients", ylabel="log-utility per client")
    axes.grid(alpha=0.3)
    return styles.finish(figure, "Ours has the highest log-utility from 8 clients to a million", OURS)


def main() -> int:
    return run("scale", __doc__ or "", experiment, draw, Config)


if __name__ == "__main__":
    sys.exit(main())
