"""GoodSpeed's Figs. 2 and 4 with real nodes and a real model: what `fig2_estimation` and `fig4_convergence` simulate.

One verify node has a core to itself, and eight draft nodes, each a client with chats of one domain, share the other.
Every run begins with a verify node that knows nothing yet, and serves so many rounds with all clients: first in the
paper's rounds (`--preset paper`), then in the default ones, and then in these with users as unequal as the settings
have them: some have several texts at once, and some draft models take several times their time. Policies take turns,
each seed with another one first, and meet the same prompts and seeds. Whatever is told of a run is what the verify node
recorded of it.

Fig. 2: as in `fig2_estimation`, with one standard deviation of ten rounds as a band. Fig. 4: U of the running average
goodput, with its 95 % interval over seeds. U(x*) is that of the survival curves that were measured in all runs of a
seed (`recorded.survival`), less what clients miss between two texts, where no policy can give them anything. The third
panel has tokens a second of each client in the default rounds, a fourth one those of unequal users.

Then all of it is simulated with what was measured (`simulated`): `twin` has each simulated figure over its live one.
"""

import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from matplotlib.figure import Figure

from experiments import fig2_estimation, fig4_convergence
from experiments.fig2_estimation import WINDOW, Series
from experiments.fig4_convergence import BASELINES, OURS
from experiments.harness import styles
from experiments.harness.experiment import Comparing, Finding, Outcome, Results, new_figure, run
from experiments.harness.progress import parts
from experiments.served import chats, pictures, running, simulated
from experiments.served.pictures import DEFAULT, FIG4, PAPER, SERVED, UNEQUAL
from experiments.served.recorded import Run, survival
from experiments.served.running import Kind
from experiments.simulation.accounts import interval
from experiments.simulation.arrays.optimum import optimum
from goodspeed.engine.model_files.names import NO_MODEL
from goodspeed.errors import ConfigError
from goodspeed.fair.policies.base import Floats
from training.chats import load
from verify_node.config import VerifyConfig

SPARE = 300
"""Texts beyond one a round: a client may be asked for some before all others have come."""


@dataclass(frozen=True)
class Config(Comparing):
    """`experiments/configs/live.toml`."""

    OPTIONS: ClassVar[Mapping[str, str]] = {
        "target": "the verify node's model",
        "draft": f"the draft nodes' model, {NO_MODEL} for n-grams; several with commas between: in turn",
        "prompts": "a folder with chats: DOMAIN.jsonl with `id` and `turns` a line",
        "num_rounds": "rounds of a run",
        "num_seeds": "runs of a policy in each kind of rounds, 2 at least",
        "budget": "drafted tokens in a round, C",
    }

    target: str
    draft: str
    num_rounds: int
    num_seeds: int
    budget: int
    temperature: float
    max_tokens: int  # of an answer, which may end by itself before
    domains: tuple[str, ...]
    policies: tuple[str, ...]
    slower: tuple[float, ...] = ()  # of unequal users: times its own time that each client's draft model takes
    loads: tuple[int, ...] = ()  # of unequal users: texts of each client at once; (): there are no such users
    prompts: str = ""  # a folder; empty: those that come with the project
    recordings: str = ""  # a file of recorded texts, for the twin; empty: the shipped one

    @property
    def kinds(self) -> dict[str, Kind]:
        """The kinds of rounds that are served, in this order."""
        budget, preset = f"--budget={self.budget}", "--preset=paper"
        found = {PAPER: Kind([budget, preset], [preset]), DEFAULT: Kind([budget])}
        return found | ({UNEQUAL: Kind([budget], [], self.slower, self.loads)} if self.loads else {})


Runs = Mapping[str, Sequence[Run]]
"""Those of each policy, by seed."""


def serve(config: Config, requests: chats.Requests, world: str) -> Runs:
    found: dict[str, list[Run]] = {policy: [] for policy in config.policies}
    turns = list(product(range(config.num_seeds), range(len(config.policies))))
    with running.nodes(
        config.target, [each.strip() for each in config.draft.split(",")], config.domains, config.kinds[world]
    ) as nodes:
        for seed, turn in parts(f"runs in {world}", turns):
            policy = config.policies[(seed + turn) % len(config.policies)]
            wanted = requests.of(seed, config.num_rounds + SPARE)
            found[policy].append(nodes.run(policy, wanted, config.num_rounds))
    return found


def experiment(config: Config) -> Outcome:
    if config.num_rounds <= 2 * WINDOW or config.num_seeds < 2 or OURS not in config.policies:
        what = (
            f"a moving average of {WINDOW} needs more than {2 * WINDOW} rounds, an interval two seeds, and a comparison"
        )
        raise ConfigError(f"{what} the policy {OURS}; not {config}")
    if config.loads and not len(config.loads) == len(config.slower) == len(config.domains):
        raise ConfigError(f"`slower` and `loads` need a number for each of the {len(config.domains)} domains")
    folder = Path(config.prompts) if config.prompts else chats.FOLDER
    asked = load(folder, config.domains)
    requests = chats.Requests(asked, config.target, config.temperature, config.max_tokens)
    runs = {world: serve(config, requests, world) for world in config.kinds}
    return outcome(config, runs, twins(config, runs))


def twins(config: Config, runs: Mapping[str, Runs]) -> dict[str, Runs]:
    """The same runs simulated, with what was measured in all runs of a kind of rounds."""
    waiting = [one for own in runs[PAPER].values() for one in own]
    texts = simulated.recorded(config.target, config.draft, config.domains, config.temperature, config.recordings)
    found: dict[str, Runs] = {}
    for world, kind in config.kinds.items():
        every = [one for own in runs[world].values() for one in own]
        preset = "paper" if world == PAPER else None
        node = VerifyConfig(model=config.target, budget=config.budget, preset=preset)
        settings = replace(simulated.settings(kind, node, every, waiting, texts), temperature=config.temperature)
        found[world] = {
            policy: [
                simulated.simulate(replace(settings, policy=policy), config.domains, config.num_rounds, seed)
                for seed in range(config.num_seeds)
            ]
            for policy in parts(f"twins in {world}", config.policies)
        }
    return found


def outcome(config: Config, runs: Mapping[str, Runs], twins: Mapping[str, Runs]) -> Outcome:
    alike = {world: own for world, own in runs.items() if world != UNEQUAL}
    estimated = {world: estimation(own[OURS]) for world, own in alike.items()}
    best = optima(runs[PAPER], config.budget)
    converged = {world: convergence(own, best) for world, own in alike.items()}
    rates = dict(zip(config.domains, _rates(runs[PAPER]).tolist(), strict=True))
    served = [row for world, own in runs.items() for row in fairness(world, own, rates)]
    curves = [row for world, own in alike.items() for row in fig2_estimation.rows_of(world, series(own[OURS][0]))]
    rows = [row for world, own in alike.items() for row in _rows(world, own, best)]
    compared = {name: (live, twin) for world in runs for name, live, twin in beside(world, runs[world], twins[world])}
    facts = {
        "fig2": estimated[PAPER],
        "fig4": converged[PAPER] | {"optimum": _figures(best)},
        "fairness": {world: {row["way"]: row for row in served if row["world"] == world} for world in runs},
        "acceptance_rate": rates,
        "twin": {name: twin / live for name, (live, twin) in compared.items()},
        "twin_figures": {name: {"live": live, "simulated": twin} for name, (live, twin) in compared.items()},
        "default": {"fig2": estimated[DEFAULT], "fig4": converged[DEFAULT]},
        "seconds_a_round": {world: {name: _seconds(each) for name, each in own.items()} for world, own in runs.items()},
        "drafts_a_round": {world: {name: _drafts(each) for name, each in own.items()} for world, own in runs.items()},
    }
    findings = [*_findings(estimated, converged, best), *fig4_convergence.served_findings(served), *_unequal(served)]
    near = simulated.NEAR
    for name, (live, twin) in compared.items():
        what, off = f"simulated / live, {name}", abs(twin / live - 1.0)
        findings.append(Finding(what, twin / live, None, f"within {near:.0%} of 1", off <= near))
    told = [{"figure": FIG4} | row for row in rows] + [{"figure": SERVED} | row for row in served]
    return Outcome(rows=told, curves=curves, findings=findings, facts=facts, notes=NOTES)


NOTES = [
    "error: of the moving averages of ten rounds, relative to what was measured. missing: (U(x*) - U) / clients, in",
    "percent, at the end of the runs; means over seeds, with 95 % intervals. Times are of this machine.",
]


# -- the twin ----------------------------------------------------------------------------------------------------------


def beside(world: str, runs: Runs, twins: Runs) -> list[tuple[str, float, float]]:
    """Name, live and simulated value of each figure that is compared."""
    found = []
    for policy, own in runs.items():
        for name, live, twin in zip(FIGURES, _means(own), _means(twins[policy]), strict=True):
            found.append((f"{world}: {policy}, {name}", live, twin))
    if world == PAPER:
        live_fig2, twin_fig2 = estimation(runs[OURS]), estimation(twins[OURS])
        found += [(f"{world}: fig2, {name}", live_fig2[name], twin_fig2[name]) for name in ("error", "corr")]
    return [one for one in found if one[1] and np.isfinite(one[1:]).all()]


FIGURES = ("tokens a round", "tokens/s", "seconds a round")
"""Of the first two the geometric mean over clients: it is as large as log-utility says."""


def _means(runs: Sequence[Run]) -> list[float]:
    """FIGURES, means over seeds."""
    clients = len(runs[0].clients)
    rounds = [float(np.exp(one.utility[-1] / clients)) for one in runs]
    seconds = [float(np.exp(np.log(one.tokens_per_s).mean())) for one in runs]
    return [float(np.mean(each)) for each in (rounds, seconds, [one.seconds / len(one.rounds) for one in runs])]


# -- Fig. 2 ------------------------------------------------------------------------------------------------------------


def series(one: Run) -> Series:
    return Series(one.tokens.sum(axis=1), one.estimates.sum(axis=1))


def estimation(runs: Sequence[Run]) -> dict[str, float]:
    """Relative error and correlation of the moving averages, with their intervals."""
    compared = [fig2_estimation.compare(series(one)) for one in runs]
    error, error_ci = interval([one["relative_error"] for one in compared])
    corr, corr_ci = interval([one["correlation"] for one in compared])
    meet, _ = interval([one["bands_meet"] for one in compared])
    return {"error": error, "error_ci": error_ci, "corr": corr, "corr_ci": corr_ci, "bands_meet": meet}


# -- Fig. 4 ------------------------------------------------------------------------------------------------------------


def optima(runs: Runs, budget: int) -> list[float]:
    """U(x*) for each seed, by what was accepted in the runs of all policies."""
    found = []
    for same_seed in zip(*runs.values(), strict=True):
        clients = range(len(same_seed[0].clients))
        curves = [survival([each for one in same_seed for each in one.trials(client)], budget) for client in clients]
        presence = np.mean([one.presence for one in same_seed], axis=0)
        found.append(optimum(curves, budget).utility + float(np.log(presence).sum()))
    return found


def convergence(runs: Runs, best: Sequence[float]) -> dict[str, dict[str, float]]:
    """U at the end by policy, and how much is missing of the optimum, and how far ours is above."""
    final = {policy: np.array([one.utility[-1] for one in own]) for policy, own in runs.items()}
    clients = len(runs[OURS][0].clients)
    found = {}
    for policy, utility in final.items():
        missing, missing_ci = interval((100.0 * (np.array(best) - utility) / clients).tolist())
        above, above_ci = interval((final[OURS] - utility).tolist())
        more = {"missing": missing, "missing_ci": missing_ci, "ours_above": above, "ours_above_ci": above_ci}
        found[policy] = _figures(utility.tolist()) | more
    return found


def _figures(utility: Sequence[float]) -> dict[str, float]:
    mean, half = interval(utility)
    return {"log_utility": mean, "ci": half}


def _rows(world: str, runs: Runs, best: Sequence[float]) -> list[dict[str, Any]]:
    found = []
    for policy, own in runs.items():
        curves = np.array([one.utility for one in own])
        both = [interval(now) if np.isfinite(now).all() else (-np.inf, 0.0) for now in curves.T.tolist()]
        mean, half = np.array(both).T
        found += fig4_convergence.rows_of(world, policy, float(np.mean(best)), mean, half)
    return found


# -- as served ---------------------------------------------------------------------------------------------------------


def fairness(world: str, runs: Runs, rates: Mapping[str, float]) -> list[dict[str, Any]]:
    """Tokens a second by policy, of clients by falling acceptance. rates: of acceptance, by client."""
    order = np.argsort([-rate for rate in rates.values()])
    about = {"world": world, "clients": [list(rates)[client] for client in order]}
    speeds = {policy: np.array([one.tokens_per_s for one in own])[:, order] for policy, own in runs.items()}
    return [about | {"way": policy} | fig4_convergence.measures(speeds[OURS], own) for policy, own in speeds.items()]


def _unequal(served: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """Judges whether ours is above the baselines beyond the interval where users are unequal."""
    found = []
    for row in served:
        if row["world"] == UNEQUAL and row["way"] in BASELINES:
            least = row["ours_above"] - row["ours_above_ci"]
            what = f"{UNEQUAL}: ln(tokens/s) by which {OURS} is above {row['way']} at least"
            found.append(Finding(what, least, None, "above 0", least > 0))
    return found


def _rates(runs: Runs) -> Floats:
    """Each client's probability that the first drafted token is accepted [clients]."""
    every = [one for own in runs.values() for one in own]
    clients = range(len(every[0].clients))
    return np.array([survival([each for one in every for each in one.trials(client)], 1)[0] for client in clients])


def _seconds(runs: Sequence[Run]) -> dict[str, float]:
    """Seconds of a round by phase, as in the paper's Fig. 3 but finer."""
    rounds = sum(len(one.rounds) for one in runs)
    return {phase: sum(one.wall_s[phase] for one in runs) / rounds for phase in runs[0].wall_s}


def _drafts(runs: Sequence[Run]) -> dict[str, float]:
    """Drafted tokens that a round verified, and what of them was accepted."""
    rounds = [done for one in runs for done in one.rounds]
    drafts = [one for done in rounds for one in done.drafts]
    drafted, accepted = sum(len(one.agreed) for one in drafts), sum(one.num_accepted for one in drafts)
    return {"drafted": drafted / len(rounds), "accepted": accepted / len(rounds)}


def _findings(
    estimated: Mapping[str, Mapping[str, float]],
    converged: Mapping[str, Mapping[str, Mapping[str, float]]],
    best: Sequence[float],
) -> list[Finding]:
    found = []
    for world, one in estimated.items():
        found += [
            Finding(f"{world}: error of the estimated goodput, +-{one['error_ci']:.4f}", one["error"]),
            Finding(f"{world}: correlation with the measured one, +-{one['corr_ci']:.3f}", one["corr"]),
        ]
    found.append(Finding(f"{PAPER}: U(x*), +-{_figures(best)['ci']:.3f}", float(np.mean(best))))
    for world, policies in converged.items():
        for policy, one in policies.items():
            found.append(Finding(f"{world}: {policy}, U at the end, +-{one['ci']:.3f}", one["log_utility"]))
            if world == PAPER:
                found.append(Finding(f"{world}: {policy}, missing, +-{one['missing_ci']:.2f}", one["missing"]))
            if policy != OURS:
                half = one["ours_above_ci"]
                wanted = ("not below 0", one["ours_above"] >= -half) if policy in BASELINES else ("", None)
                what = f"{world}: U by which {OURS} is above {policy}, +-{half:.3f}"
                found.append(Finding(what, one["ours_above"], None, *wanted))
    return found


def draw(config: Config, results: Results) -> Figure:
    """Estimated and measured goodput; utility over rounds; tokens a second of each client, by kind of rounds."""
    served = [world for world in (DEFAULT, UNEQUAL) if pictures.rows_of(results, SERVED, world)]
    figure = new_figure(10.0 + 5.0 * len(served), 4.8)
    first, second, *others = figure.subplots(1, 2 + len(served))
    pictures.estimates(first, results)
    pictures.utility(second, results)
    for panel, world in zip(others, served, strict=True):
        pictures.speeds(panel, results, world)
    return styles.finish(figure, _title(config, results), OURS)


def _title(config: Config, results: Results) -> str:
    served = [row for row in pictures.rows_of(results, SERVED, DEFAULT) if row["way"] != OURS]
    above = ", ".join(f"{row['ours_above']:.3f} ± {row['ours_above_ci']:.3f} above {row['way']}" for row in served)
    return f"{config.target} served to {len(config.domains)} clients: by default the log-utility of {OURS} is {above}"


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that the nodes end, too
    about = "Estimated and measured goodput, and utility over rounds, of real nodes with a real model."
    sys.exit(run("live", about, experiment, draw, Config))
