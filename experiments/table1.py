"""Table I of the paper: its six settings, and what each policy makes of them.

The paper's table has settings and no results, so there is nothing to compare with; the results are ours. The same
settings are then served as GoodSpeed does by default, with continuous rounds and the match rule: plainly, with draft
models, with n-gram indexes, and with both, replaying what these propose for recorded texts.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import fmean

from matplotlib.figure import Figure

from experiments.harness import experiment as harness
from experiments.harness import styles
from experiments.harness.experiment import Comparing, Finding, Outcome, Results
from experiments.harness.progress import parts
from experiments.simulation.accounts import Run, interval, log_utility, runs
from experiments.simulation.paper import POLICIES, TABLE_1, WAYS, Nodes, Row, compared, serving, world
from goodspeed.fair.estimators import jain_index

L4S = Nodes()
GAIN = 1.2
"""Served with histories, over plain decoding: what is wanted in every setting."""

NEVER_BELOW = 0.98
"""The same of every way, in every setting."""

PAPER = "paper"
OURS = "gradient"
"""The way of the rows that are the paper's rounds: barrier, whole drafts, draft models only."""

NOTES = [
    "The paper's Table I has settings and no results; its utility is that of tokens per round.",
    "Served texts are compared by the sum of the clients' own speeds, and by all tokens until the last client is done.",
]


@dataclass(frozen=True)
class Config(Comparing):
    seeds: int
    texts: int
    wire: str
    rounds: str
    served_seeds: int
    served_texts: int  # of each client, where texts are served
    temperatures: list[float]  # of these texts
    settings: tuple[Row, ...] = TABLE_1
    nodes: Nodes = L4S
    policies: tuple[str, ...] = ()  # of the user's own
    recordings: str = ""  # a file of recorded texts; empty: the shipped one


def experiment(config: Config) -> Outcome:
    rows, findings = [], []
    for number, row in enumerate(parts("settings", config.settings), 1):
        own = {policy: _runs(row, policy, config) for policy in compared(config.policies)}
        rows += [_key(number, row, policy, PAPER, 1.0) | _measures(own[policy]) for policy in own]
        findings += _findings(row, own)
        for temperature in config.temperatures:
            served = {way: _served(row, way, temperature, config) for way in WAYS}
            for way, found in served.items():
                policy = "gradient" if WAYS[way].drafts else "plain"
                rows.append(_key(number, row, policy, way, temperature) | _measures(found))
            findings += _over_plain(row, temperature, served)
    return Outcome(rows=rows, findings=findings, notes=NOTES)


def _runs(row: Row, policy: str, config: Config) -> list[Run]:
    make = partial(world, row, config.nodes, policy=policy, rounds=config.rounds, wire=config.wire)
    return runs(partial(make, num_texts=config.texts, recordings=config.recordings), config.seeds)


def _key(number: int, row: Row, policy: str, way: str, temperature: float) -> dict[str, object]:
    return {"setting": number, "name": row.name, "policy": policy, "way": way, "temperature": temperature}


def _served(row: Row, way: str, temperature: float, config: Config) -> list[Run]:
    make = partial(serving, row, config.nodes, way, temperature=temperature)
    return runs(partial(make, num_texts=config.served_texts, recordings=config.recordings), config.served_seeds)


def _measures(found: list[Run]) -> dict[str, float]:
    """Means over the seeds, each with half of its confidence interval."""
    values: dict[str, list[float]] = {
        "goodput": [sum(each.goodputs) for each in found],  # tokens per round, of all clients
        "log_utility": [log_utility(each.goodputs) for each in found],
        "log_utility_per_s": [log_utility(each.speeds) for each in found],
        "jain": [jain_index(each.goodputs) for each in found],
        "tokens_per_s": [each.tokens_per_s for each in found],
        "client_tokens_per_s": [sum(each.speeds) for each in found],
        "rounds": [each.accounts.num_rounds for each in found],
        "drafted_per_round": [each.accounts.num_drafted / each.accounts.num_rounds for each in found],
    }
    measured = {name: interval(of_seeds) for name, of_seeds in values.items()}
    return {name: mean for name, (mean, _) in measured.items()} | {
        f"{name}_ci": half for name, (_, half) in measured.items()
    }


def _findings(row: Row, found: dict[str, list[Run]]) -> list[Finding]:
    def mean(policy: str, seconds: bool) -> float:
        return fmean(log_utility(each.speeds if seconds else each.goodputs) for each in found[policy]) / row.num_clients

    findings = []
    own = [policy for policy in found if policy not in POLICIES]
    for other in ("fixed", "random", *own):
        gain = mean("gradient", False) - mean(other, False)
        what = f"{row.name}: log-utility per round and client, gradient above {other}"
        findings.append(Finding(what, gain, wanted="above 0", reached=gain > 0))
        what = f"{row.name}: log-utility per second and client, gradient above {other}"
        findings.append(Finding(what, mean("gradient", True) - mean(other, True)))
    for other in ("fixed", "plain", *own):
        speeds = (fmean(each.tokens_per_s for each in found[policy]) for policy in ("gradient", other))
        findings.append(Finding(f"{row.name}: tokens/s, gradient over {other}", next(speeds) / next(speeds)))
    return findings


def _over_plain(row: Row, temperature: float, served: dict[str, list[Run]]) -> list[Finding]:
    """Every way over plain decoding, on the same texts, in both measures."""
    measures: dict[str, Callable[[Run], float]] = {
        "own speeds": lambda each: sum(each.speeds),
        "tokens/s": lambda each: each.tokens_per_s,
    }
    findings = []
    for name, measure in measures.items():
        speeds = {way: fmean(map(measure, found)) for way, found in served.items()}
        plain = speeds.pop("plain")
        for way, speed in speeds.items():
            what = f"{row.name}, T = {temperature:g}: {name}, {way} over plain"
            least = GAIN if WAYS[way].ngrams == "history" else NEVER_BELOW
            findings.append(Finding.at_least(what, speed / plain, least))
    return findings


def draw(config: Config, results: Results) -> Figure:
    """Utility per round and tokens per second, by setting and policy."""
    figure = harness.new_figure(12.0, 4.8)
    policies = compared(config.policies)
    width = 0.8 / len(policies)
    measures = {"log_utility": "log-utility of tokens per round", "tokens_per_s": "tokens per second, all clients"}
    for axes, (name, label) in zip(figure.subplots(1, 2), measures.items(), strict=True):
        for place, policy in enumerate(policies):
            chosen = [row for row in results.rows if row["policy"] == policy and row.get("way", PAPER) == PAPER]
            places = [row["setting"] + width * (place - (len(policies) - 1) / 2) for row in chosen]
            errors = [row[f"{name}_ci"] for row in chosen]
            style = styles.bar(styles.numbers(policies, OURS)[policy])
            axes.bar(places, [row[name] for row in chosen], width, yerr=errors, label=policy, **style)
        axes.set_title(label)
        names = [row.name.replace(", ", "\n") for row in config.settings]
        axes.set_xticks(range(1, len(names) + 1), names, fontsize=7)
    title = "Eq. (5) has the highest utility per round; every draft is waited for, which costs tokens per second"
    return styles.finish(figure, title, OURS)


if __name__ == "__main__":
    sys.exit(harness.run("table1", __doc__ or "", experiment, draw, Config))
