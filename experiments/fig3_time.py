"""Figure 3 of the paper: wall time split in receiving, verifying and sending, with barrier rounds.

The paper's parts: *receiving* lasts while the verify node waits for draft nodes to draft and to transmit, until its
batch is complete; *verifying* is the verification itself; *sending* hands accepted tokens and next lengths back. Wall
time ends when every client has the same number of tokens.
"""

import sys
from dataclasses import dataclass
from functools import partial
from itertools import product
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.harness import experiment as harness
from experiments.harness import styles
from experiments.harness.experiment import Comparing, Finding, Outcome, Results
from experiments.harness.progress import parts
from experiments.simulation.accounts import Run, interval, runs
from experiments.simulation.paper import POLICIES, Nodes, Row, compared, world

OURS = "gradient"


@dataclass(frozen=True)
class Place(Nodes):
    """Draft nodes, and which of the family's draft models they have in turn."""

    models: tuple[int, ...] = (0, 1)


@dataclass(frozen=True)
class Config(Comparing):
    seeds: int
    texts: int
    families: tuple[str, ...]
    wires: tuple[str, ...]
    nodes: dict[str, Place]
    num_clients: int = 8
    budget: int = 20
    max_tokens: int = 150  # of each text
    policies: tuple[str, ...] = ()  # of the user's own
    recordings: str = ""  # a file of recorded texts; empty: the shipped one

    def row(self, family: str, place: Place) -> Row:
        return Row(family, self.num_clients, self.budget, self.max_tokens, place.models)


def experiment(config: Config) -> Outcome:
    rows, findings = [], []
    places = product(config.families, config.nodes, config.wires)
    for family, nodes, wire in parts("settings", places):
        found = {policy: _runs(family, nodes, wire, policy, config) for policy in compared(config.policies)}
        key: dict[str, Any] = {"family": family, "nodes": nodes, "wire": wire}
        rows += [key | {"policy": policy} | _measures(own, found["fixed"]) for policy, own in found.items()]
        findings += _findings(f"{family}, {nodes}, {wire}", found)
    return Outcome(rows=rows, findings=findings)


def _runs(family: str, nodes: str, wire: str, policy: str, config: Config) -> list[Run]:
    place = config.nodes[nodes]
    make = partial(world, config.row(family, place), place, policy=policy, rounds="barrier", wire=wire)
    return runs(partial(make, num_texts=config.texts, recordings=config.recordings), config.seeds)


def _measures(found: list[Run], fixed: list[Run]) -> dict[str, float]:
    """Means over the seeds; what is said of `fixed` is the ratio on the same seed, with its interval."""
    accounts = [each.accounts for each in found]
    against, against_ci = ratio(found, fixed, "wall_s")
    verifying, verifying_ci = ratio(found, fixed, "verify_s")
    return {
        "wall_s": fmean(each.wall_s for each in accounts),
        "receive_s": fmean(each.receive_s for each in accounts),
        "verify_s": fmean(each.verify_s for each in accounts),
        "send_s": fmean(each.send_s for each in accounts),
        "num_rounds": fmean(each.num_rounds for each in accounts),
        "drafted_per_round": fmean(each.num_drafted / each.num_rounds for each in accounts),
        "wall_of_fixed": against,
        "wall_of_fixed_ci": against_ci,
        "verify_of_fixed": verifying,
        "verify_of_fixed_ci": verifying_ci,
    }


def ratio(found: list[Run], others: list[Run], measure: str) -> tuple[float, float]:
    """Returns the mean ratio of a measure of the accounts over the seeds, and half of its interval."""
    pairs = zip(found, others, strict=True)
    return interval([getattr(own.accounts, measure) / getattr(other.accounts, measure) for own, other in pairs])


def _findings(at: str, found: dict[str, list[Run]]) -> list[Finding]:
    """The paper's figures; of random's 5 to 25 % the middle."""
    walls = {policy: ratio(own, found["fixed"], "wall_s")[0] for policy, own in found.items()}
    verifying, _ = ratio(found["gradient"], found["fixed"], "verify_s")
    sending = max(each.accounts.send_s / each.accounts.wall_s for own in found.values() for each in own)
    return [
        Finding(f"{at}: gradient's wall time of fixed's", walls["gradient"], 1.0),
        Finding(f"{at}: the same of random", walls["random"], 1.15),
        *(Finding(f"{at}: the same of {policy}", wall) for policy, wall in walls.items() if policy not in POLICIES),
        Finding(f"{at}: verification, gradient of fixed", verifying, 0.95),
        Finding(f"{at}: share of sending", sending, 0.001, "below 0.001", sending < 0.001),
    ]


def draw(config: Config, results: Results) -> Figure:
    """Parts of the first family's wall time, with the first wire; a panel for each kind of nodes."""
    figure = harness.new_figure(3.8 * len(config.nodes), 4.4)
    panels = figure.subplots(1, len(config.nodes), squeeze=False).flat
    family, wire = next(iter(config.families)), config.wires[0]
    for panel, nodes in zip(panels, config.nodes, strict=True):
        own = [row for row in results.rows if (row["family"], row["nodes"], row["wire"]) == (family, nodes, wire)]
        _draw_panel(panel, own)
        panel.set_title(f"{family}, {nodes} draft nodes")
    title = "With barrier rounds waiting for slow draft nodes takes most of the time"
    return styles.finish(figure, title, OURS)


def _draw_panel(axes: Axes, rows: list[dict[str, Any]]) -> None:
    """A bar of parts for each policy. What sending takes is too little to be seen."""
    labels = [styles.OURS.format(OURS) if row["policy"] == OURS else row["policy"] for row in rows]
    below = [0.0] * len(rows)
    for number, (part, label) in enumerate({"receive_s": "waiting for drafts", "verify_s": "verifying"}.items()):
        values = [row[part] for row in rows]
        axes.bar(labels, values, bottom=below, label=label, **styles.bar(number))
        below = [low + value for low, value in zip(below, values, strict=True)]
    axes.set_ylim(0.0, 1.08 * max(below))  # the parts' ends would else be the picture's edge
    axes.set_ylabel("wall time, s")
    axes.tick_params("x", rotation=30)


if __name__ == "__main__":
    sys.exit(harness.run("fig3_time", __doc__ or "", experiment, draw, Config))
