"""One client is ten times slower than the others, or 300 ms away: what do the *other* clients' users notice?

Time between tokens is looked at in two ways: the gaps between a text's verdicts (a verdict's tokens come at once), and
per token, each counted with its gap divided by the tokens that came together. Percentiles are over everything that the
other clients got in a run; intervals over seeds. The paper has no such experiment; its rounds are the barrier's.
"""

import sys
from dataclasses import dataclass
from functools import partial
from itertools import product
from statistics import fmean
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.harness import experiment as harness
from experiments.harness import styles
from experiments.harness.experiment import Comparing, Finding, Outcome, Results
from experiments.harness.progress import parts
from experiments.simulation.accounts import Run, interval, runs
from experiments.simulation.paper import Nodes, Row, world

NUM_OTHERS = 7
CASES = ("absent", "ordinary", "slow", "far")
ROUNDS = ("barrier", "continuous")
OURS, SHOWN = "continuous", "gradient"
POLICIES = ("gradient", "fixed")
WORST = 1.1


@dataclass(frozen=True)
class Setup:
    family: str
    device: float  # how many times an L4's time the draft nodes take

    @property
    def name(self) -> str:
        return self.family if self.device == 1 else f"{self.family}, {self.device:g} x L4's time"


@dataclass(frozen=True)
class Config(Comparing):
    seeds: int
    texts: int
    slower: float
    far_s: float
    latency_s: float
    setups: tuple[Setup, ...]
    policies: tuple[str, ...] = POLICIES
    recordings: str = ""  # a file of recorded texts; empty: the shipped one


def experiment(config: Config) -> Outcome:
    rows, findings = [], []
    for setup, policy, rounds in parts("settings", product(config.setups, config.policies, ROUNDS)):
        noticed = {case: _runs(setup, policy, rounds, case, config) for case in CASES}
        for case, seen in noticed.items():
            row: dict[str, Any] = {"setup": setup.name, "policy": policy, "rounds": rounds, "case": case}
            rows.append(row | {name: fmean(each[name] for each in seen) for name in seen[0]} | _worse(noticed, case))
        findings += [_finding(row) for row in rows[-2:]]
    return Outcome(rows=rows, findings=findings)


def place(case: str, device: float, config: Config) -> tuple[int, Nodes]:
    """Returns how many clients there are, and what they are like; the straggler is the last."""
    factors, latency_s = [device] * (NUM_OTHERS + 1), [config.latency_s] * (NUM_OTHERS + 1)
    factors[-1] *= config.slower if case == "slow" else 1.0
    latency_s[-1] = config.far_s if case == "far" else config.latency_s
    num_clients = NUM_OTHERS if case == "absent" else NUM_OTHERS + 1
    return num_clients, Nodes(slower=tuple(factors), latency_s=tuple(latency_s))


def _runs(setup: Setup, policy: str, rounds: str, case: str, config: Config) -> list[dict[str, float]]:
    num_clients, nodes = place(case, setup.device, config)
    row = Row(setup.family, num_clients, 20, 150, (0,))
    make = partial(world, row, nodes, policy=policy, rounds=rounds, wire="match")
    found = runs(partial(make, num_texts=config.texts, recordings=config.recordings), config.seeds)
    return [noticed(one) for one in found]


def noticed(run: Run) -> dict[str, float]:
    """Returns the gaps that the users of the other clients notice, in milliseconds."""
    gaps = [gap for client in range(NUM_OTHERS) for gap in run.gaps(client)]
    seconds, tokens = np.array([gap[0] for gap in gaps]), np.array([gap[1] for gap in gaps])
    per_token = np.repeat(seconds / tokens, tokens)
    return {
        "gap_mean_ms": 1e3 * float(seconds.mean()),
        "gap_p95_ms": 1e3 * float(np.percentile(seconds, 95)),
        "gap_p99_ms": 1e3 * float(np.percentile(seconds, 99)),
        "token_mean_ms": 1e3 * float(per_token.mean()),
        "token_p95_ms": 1e3 * float(np.percentile(per_token, 95)),
    }


def _worse(noticed: dict[str, list[dict[str, float]]], case: str) -> dict[str, float]:
    """95th percentiles of those with nobody, or an ordinary client, in the straggler's place; on the same seed."""
    worse: dict[str, float] = {}
    for other, measure in product(("absent", "ordinary"), ("gap_p95_ms", "token_p95_ms", "token_mean_ms")):
        ratios = [seen[measure] / without[measure] for seen, without in zip(noticed[case], noticed[other], strict=True)]
        name = f"{measure.removesuffix('_ms')}_of_{other}"
        worse[name], worse[f"{name}_ci"] = interval(ratios)
    return worse


def _finding(row: dict[str, Any]) -> Finding:
    """The worst of four ratios: gaps and per token, against nobody and against an ordinary client."""
    names = [f"{measure}_of_{other}" for measure in ("gap_p95", "token_p95") for other in ("absent", "ordinary")]
    worst = max(float(row[name]) for name in names)
    what = f"{row['setup']}, {row['policy']}, {row['rounds']}: others' p95 beside a {row['case']} client, of without"
    if row["rounds"] == "barrier":
        return Finding(what, worst)
    return Finding.at_most(what, worst, WORST)


def draw(config: Config, results: Results) -> Figure:
    """Waits of the others under the paper's policy, with both kinds of rounds: a panel for each setup."""
    figure = harness.new_figure(4.0 * len(config.setups), 4.4)
    panels = figure.subplots(1, len(config.setups), squeeze=False, sharey=True).flat
    for panel, setup in zip(panels, config.setups, strict=True):
        for place, rounds in enumerate((OURS, "barrier")):
            key = (setup.name, SHOWN, rounds)
            own = [row for row in results.rows if (row["setup"], row["policy"], row["rounds"]) == key]
            places = np.arange(len(CASES)) + 0.4 * (place - 0.5)
            panel.bar(places, [row["gap_p95_ms"] for row in own], 0.4, label=rounds, **styles.bar(place))
        panel.set_xticks(range(len(CASES)), CASES)
        panel.set(yscale="log", title=f"{setup.name}, {SHOWN}", xlabel="the eighth client is")
        panel.set_ylabel("ms between verdicts, 95th percentile")
    title = "A slow or far client holds up the other seven in barrier rounds, and not in continuous ones"
    return styles.finish(figure, title, OURS)


if __name__ == "__main__":
    sys.exit(harness.run("stragglers", __doc__ or "", experiment, draw, Config))
