"""Figure 3 of the paper: wall time split in receiving, verifying and sending, with barrier and with continuous rounds.

The paper's parts: *receiving* lasts while the verify node waits for draft nodes to draft and to transmit, until its
batch is complete; *verifying* is the verification itself; *sending* hands accepted tokens and next lengths back. Wall
time ends when every client has the same number of tokens. Barrier rounds are
the paper's; continuous ones are how GoodSpeed serves by default. The same clients are then served recorded texts with
continuous rounds and the match rule, in each of the ways of drafting (`WAYS`).
"""

import sys
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.harness import experiment as harness
from experiments.harness import styles
from experiments.harness.experiment import Finding, Outcome, Results
from experiments.harness.progress import parts
from experiments.simulation.accounts import Run, interval, run
from experiments.simulation.paper import POLICIES, WAYS, Nodes, Row, compared, serving, world

ROUNDS = ("barrier", "continuous")
PAPER = "paper"
OURS = "gradient"
"""The way of the rows that replay the paper's: draft models only, and whole drafts under barrier rounds."""

SLACK = 1.03
"""`At most fixed's, within a few percent`."""


@dataclass(frozen=True)
class Place(Nodes):
    """Draft nodes, and which of the family's draft models they have in turn."""

    models: tuple[int, ...] = (0, 1)


@dataclass(frozen=True)
class Config:
    seeds: int
    texts: int
    families: tuple[str, ...]
    wires: tuple[str, ...]
    nodes: dict[str, Place]
    temperatures: list[float]  # of the texts that are served
    num_clients: int = 8
    budget: int = 20
    max_tokens: int = 150  # of each text
    policies: tuple[str, ...] = ()  # of the user's own, beside POLICIES
    recordings: str = ""  # a file of recorded texts; empty: the shipped one

    def with_policy(self, name: str) -> "Config":
        """The same with one more policy to compare."""
        return replace(self, policies=(*self.policies, name))

    def row(self, family: str, place: Place) -> Row:
        return Row(family, self.num_clients, self.budget, self.max_tokens, place.models)


def experiment(config: Config) -> Outcome:
    found: dict[tuple[str, ...], list[Run]] = {}
    rows = []
    places = product(config.families, config.nodes, config.wires, ROUNDS)
    for family, nodes, wire, rounds in parts("settings", places):
        for policy in compared(config.policies):
            found[family, nodes, wire, rounds, policy] = _runs(family, nodes, wire, rounds, policy, config)
        fixed = found[family, nodes, wire, rounds, "fixed"]
        for policy in compared(config.policies):
            key: dict[str, Any] = {"family": family, "nodes": nodes, "wire": wire, "rounds": rounds, "policy": policy}
            key |= {"way": PAPER, "temperature": 1.0}
            own = found[family, nodes, wire, rounds, policy]
            plain = found[family, nodes, wire, rounds, "plain"]
            rows.append(key | _measures(own, fixed) | _of_plain(own, plain))
    findings = _findings(config, found)
    for family, nodes, temperature in parts("served", product(config.families, config.nodes, config.temperatures)):
        served = {way: _served(family, config.nodes[nodes], way, temperature, config) for way in WAYS}
        for way, runs in served.items():
            rows.append(_served_row(family, nodes, way, temperature, runs, served["plain"]))
        findings += _served_findings(f"{family}, {nodes}, T = {temperature:g}", served)
    return Outcome(rows=rows, findings=findings)


def _served(family: str, place: Place, way: str, temperature: float, config: Config) -> list[Run]:
    make = partial(
        serving,
        config.row(family, place),
        place,
        way,
        temperature=temperature,
        num_texts=config.texts,
        recordings=config.recordings,
    )
    return [run(make(seed=seed), seed) for seed in range(config.seeds)]


def _served_row(
    family: str, nodes: str, way: str, temperature: float, runs: list[Run], plain: list[Run]
) -> dict[str, Any]:
    """The row of served texts; nothing is compared with `fixed`."""
    policy = "gradient" if WAYS[way].drafts else "plain"
    key = {"family": family, "nodes": nodes, "wire": "match", "rounds": "continuous", "policy": policy, "way": way}
    measures = {name: value for name, value in _measures(runs, runs).items() if "_of_fixed" not in name}
    return key | {"temperature": temperature} | measures | _of_plain(runs, plain)


def _of_plain(runs: list[Run], plain: list[Run]) -> dict[str, float]:
    """Wall time, and the mean time until a client is done, which the last one does not decide alone."""
    against, half = ratio(_walls(runs), _walls(plain))
    done, done_half = ratio(_done(runs), _done(plain))
    return {
        "wall_of_plain": against,
        "wall_of_plain_ci": half,
        "mean_done_of_plain": done,
        "mean_done_of_plain_ci": done_half,
    }


def _done(runs: list[Run]) -> list[float]:
    return [fmean(each.done_s) for each in runs]


def _served_findings(at: str, served: dict[str, list[Run]]) -> list[Finding]:
    findings = []
    for way, runs in served.items():
        if way != "plain":
            wall, _ = ratio(_walls(runs), _walls(served["plain"]))
            done, _ = ratio(_done(runs), _done(served["plain"]))
            findings.append(_at_most(f"{at}: served, wall time, {way} of plain's", wall, None))
            findings.append(_at_most(f"{at}: served, mean time until done, {way} of plain's", done, None))
    return findings


def _runs(family: str, nodes: str, wire: str, rounds: str, policy: str, config: Config) -> list[Run]:
    place = config.nodes[nodes]
    make = partial(
        world,
        config.row(family, place),
        place,
        policy=policy,
        rounds=rounds,
        wire=wire,
        num_texts=config.texts,
        recordings=config.recordings,
    )
    return [run(make(seed=seed), seed) for seed in range(config.seeds)]


def _measures(runs: list[Run], fixed: list[Run]) -> dict[str, float]:
    """Means over the seeds; what is said of `fixed` is the ratio on the same seed, with its interval."""
    accounts = [each.accounts for each in runs]
    against, against_ci = ratio(_walls(runs), _walls(fixed))
    verifying, verifying_ci = ratio(_verifying(runs), _verifying(fixed))
    return {
        "wall_s": fmean(_walls(runs)),
        "receive_s": fmean(each.receive_s for each in accounts),
        "verify_s": fmean(each.verify_s for each in accounts),
        "send_s": fmean(each.send_s for each in accounts),
        "num_rounds": fmean(each.num_rounds for each in accounts),
        "drafted_per_round": fmean(each.num_drafted / each.num_rounds for each in accounts),
        "mean_done_s": fmean(fmean(each.done_s) for each in runs),
        "wall_of_fixed": against,
        "wall_of_fixed_ci": against_ci,
        "verify_of_fixed": verifying,
        "verify_of_fixed_ci": verifying_ci,
    }


def ratio(values: list[float], others: list[float]) -> tuple[float, float]:
    return interval([value / other for value, other in zip(values, others, strict=True)])


def _walls(runs: list[Run]) -> list[float]:
    return [each.accounts.wall_s for each in runs]


def _verifying(runs: list[Run]) -> list[float]:
    return [each.accounts.verify_s for each in runs]


def _findings(config: Config, found: dict[tuple[str, ...], list[Run]]) -> list[Finding]:
    findings = []
    for family, nodes, wire in product(config.families, config.nodes, config.wires):
        at = f"{family}, {nodes}, {wire}"
        barrier, continuous = (
            {policy: found[family, nodes, wire, rounds, policy] for policy in compared(config.policies)}
            for rounds in ROUNDS
        )
        findings += _beside_the_paper(at, barrier)
        for other in ("fixed", "plain", *(policy for policy in continuous if policy not in POLICIES)):
            wall, _ = ratio(_walls(continuous["gradient"]), _walls(continuous[other]))
            findings.append(_at_most(f"{at}: continuous, gradient's wall time of {other}'s", wall, None))
        lower, half = ratio(_walls(continuous["gradient"]), _walls(barrier["gradient"]))
        what = f"{at}: gradient's wall time, continuous, of its own with barrier"
        if nodes == "unequal":
            findings.append(Finding(what, lower, wanted="clearly below 1", reached=lower + half < 1.0))
        else:
            findings.append(Finding(what, lower))
    return findings


def _at_most(what: str, wall: float, paper: float | None) -> Finding:
    return Finding(what, wall, paper, wanted=f"at most {SLACK}", reached=wall <= SLACK)


def _beside_the_paper(at: str, runs: dict[str, list[Run]]) -> list[Finding]:
    """The paper's figures for barrier rounds; of random's 5 to 25 % the middle."""
    walls = {policy: ratio(_walls(found), _walls(runs["fixed"]))[0] for policy, found in runs.items()}
    verifying, _ = ratio(_verifying(runs["gradient"]), _verifying(runs["fixed"]))
    sending = max(each.accounts.send_s / each.accounts.wall_s for found in runs.values() for each in found)
    return [
        Finding(f"{at}: barrier, gradient's wall time of fixed's", walls["gradient"], 1.0),
        Finding(f"{at}: barrier, the same of random", walls["random"], 1.15),
        Finding(f"{at}: barrier, verification, gradient of fixed", verifying, 0.95),
        Finding(f"{at}: barrier, share of sending", sending, 0.001, "below 0.001", sending < 0.001),
    ]


def draw(config: Config, results: Results) -> Figure:
    """Parts of the first family's wall time, with barrier rounds and the first wire; a panel for each kind of nodes."""
    figure = harness.new_figure(3.8 * len(config.nodes), 4.4)
    panels = figure.subplots(1, len(config.nodes), squeeze=False).flat
    family, wire = next(iter(config.families)), config.wires[0]
    for panel, nodes in zip(panels, config.nodes, strict=True):
        key = (family, nodes, wire, "barrier", PAPER)
        names = ("family", "nodes", "wire", "rounds", "way")
        _draw_panel(panel, [row for row in results.rows if tuple(row[name] for name in names) == key])
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


def main() -> int:
    return harness.run("fig3_time", __doc__ or "", experiment, draw, Config)


if __name__ == "__main__":
    sys.exit(main())
