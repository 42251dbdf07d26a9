"""The paper's Fig. 4: the utility of the running average goodput over 600 rounds, with U(x*) as a line.

The array path of barrier rounds (`simulation/arrays`, equal to the state machines bit for bit). Rounds count from
the first with drafts: the one before it is the prompts'. Seeds are 0, 1, 2, ...; the seeds' mean of U is shown with its
95 % confidence interval. "Within 1 % of x* in log-utility per client" is read as (U(x*) - mean U) / clients <= 0.01.
Under replay, x* is that of the survival curves of each client's texts and draft model, with drafts that begin at every
position equally often. Real drafts do not: each begins after a disagreement, or where the one before it was at its end.
So the x* of the curves at the positions at which `gradient` did begin is given beside it (dotted).

Then the same policies are compared as GoodSpeed serves by default, beside its preset and plain decoding, for unequal
clients: continuous rounds and the match rule, over the state machines in virtual time; so tokens count by second, not
by round. The policy says who may draft how much. Which drafted tokens a round verifies is chosen by w U'(X) with
`gradient`, and by the number of tokens alone with `fixed`, `random` and `throughput`, which have no utility.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.harness import styles
from experiments.harness.experiment import Comparing, Finding, Outcome, Results, new_figure, run
from experiments.harness.progress import parts
from experiments.simulation.accounts import interval
from experiments.simulation.arrays import rows as row_policies
from experiments.simulation.arrays.optimum import geometric, optimum, utility_of
from experiments.simulation.arrays.probabilities import IndependentDraws
from experiments.simulation.arrays.replays import IN_TURN, Replays, alphas_of, clients_of, curves_of
from experiments.simulation.arrays.worlds import ArraySettings, Worlds
from experiments.simulation.settings import PAPER, Settings
from experiments.simulation.steady import Stretch, steady
from goodspeed.errors import ConfigError
from goodspeed.fair.estimators import jain_index
from goodspeed.fair.policies.base import Floats
from goodspeed.fair.round_time import Linear
from verify_node.config import PAPER_BETA

SHOWN = (1, 2, 5, *range(10, 60, 10), 75, *range(100, 650, 50))  # rounds, in the results
PAPER_ROUNDS = 400  # in which the paper's curves settle
OURS = "gradient"  # the variant with the verify node's defaults
PRESET = "gradient, paper's beta 0.5"  # the variant that `--preset paper` is
TITLE = "Ours comes close to the best utility in the paper's rounds; as served, every client is faster than in these"
EARLY, WITHIN, EARLY_WITHIN = 50, 1.0, 2.0

BASELINES = ("fixed", "random")
MS = 0.001
DEAR = Settings(
    num_clients=8,
    alpha=(0.95, 0.9, 0.85, 0.75, 0.65, 0.55, 0.45, 0.3),
    draft_cost=tuple(Linear(fixed_s=MS * token) for token in (2, 4, 6, 2, 3, 8, 4, 2)),
    latency_s=tuple(MS * way for way in (5, 30, 10, 2, 10, 5, 40, 20)),
)
SCARCE = "C = 8, a token costs 0.1 of 50 ms"
WORLDS = {
    "C = 24, a token costs 0.5 of 10 ms": DEAR,
    SCARCE: replace(DEAR, budget=8, round_cost=Linear(fixed_s=50 * MS, token_s=0.1 * MS)),
}
"""The simulation's own model of time; and a round that is long beside every token, so that C is what is scarce."""

WAYS: dict[str, dict[str, Any]] = {
    "paper": PAPER | {"beta": PAPER_BETA, "weigh_evidence": False},  # `--preset paper`
    "plain": {"max_draft": 0},
}


@dataclass(frozen=True)
class Setting:
    """The clients that take part, their budget and their acceptance."""

    num_clients: int
    budget: int
    acceptance: Literal["recorded", "replay"] | list[float]
    models: tuple[int, ...] = IN_TURN  # recorded ones, of the clients in turn

    @property
    def name(self) -> str:
        kind = self.acceptance if isinstance(self.acceptance, str) else "spread"
        alike = (
            "" if len(set(self.models)) > 1 else f", all with the {('smaller', 'larger')[self.models[0]]} draft model"
        )
        return f"{self.num_clients} clients, C = {self.budget}, {kind}{alike}"

    def agreement(self, seeds: Sequence[int], recordings: str = "") -> tuple[Floats, IndependentDraws]:
        """Survival curves [clients, budget], and the draws for these seeds."""
        clients = clients_of(self.num_clients, recordings, self.models)
        if self.acceptance == "replay":
            return curves_of(clients, self.budget), Replays(clients, self.budget, seeds)
        alphas = alphas_of(clients) if self.acceptance == "recorded" else np.array(self.acceptance)
        if len(alphas) != self.num_clients:
            raise ConfigError(f"{len(alphas)} rates of acceptance for {self.num_clients} clients; give one for each")
        return geometric(alphas, self.budget), IndependentDraws(alphas, seeds)


@dataclass(frozen=True)
class Variant:
    """A policy, and how what it is told is estimated."""

    name: str
    policy: str
    eta: float = 0.1
    beta: float = 0.1
    weigh_evidence: bool = True


@dataclass(frozen=True)
class Served:
    """The tokens served in each world: per client, before and while it is measured."""

    num_seeds: int
    warm: int
    measured: int

    def rows(self, policies: Sequence[str]) -> list[dict[str, Any]]:
        """A row for each world and way: means over the seeds, and how far `gradient` is above it, in ln(tokens/s)."""
        ways = {OURS: {}, **{name: {"policy": name} for name in policies}, **WAYS}
        found = []
        for world, settings in parts("served worlds", WORLDS.items()):
            speeds = {name: self._speeds(replace(settings, **way)) for name, way in ways.items()}
            found += [{"world": world, "way": name} | measures(speeds[OURS], own) for name, own in speeds.items()]
        return found

    def _speeds(self, settings: Settings) -> Floats:
        """Tokens per second [seeds, clients]; seeds have the same luck with every way."""
        stretch, seeds = Stretch(self.warm, self.measured), range(self.num_seeds)
        return np.array([steady(replace(settings, policy_seed=seed), stretch, seed).tokens_per_s for seed in seeds])


@dataclass(frozen=True)
class Config(Comparing):
    """`experiments/configs/fig4_convergence.toml`."""

    num_seeds: int
    num_rounds: int
    settings: list[Setting]
    variants: list[Variant]
    served: Served | None = None  # None: nothing is served
    policies: tuple[str, ...] = ()  # of the user's own
    recordings: str = ""  # a file of recorded texts; empty: the shipped one


def simulate(
    setting: Setting, variant: Variant, agreement: IndependentDraws, num_seeds: int, num_rounds: int
) -> tuple[Floats, Floats]:
    """U of the running average goodput [rounds, seeds]; survival curves where drafts began, under replay."""
    settings = ArraySettings(
        setting.num_clients, setting.budget, variant.eta, variant.beta, num_seeds, variant.weigh_evidence
    )
    worlds = Worlds(settings, row_policies.create(variant.policy, num_seeds), agreement)
    worlds.step()
    before = worlds.num_tokens.copy()
    found = np.zeros((num_rounds, num_seeds))
    begun = np.zeros((setting.num_clients, setting.budget))
    for number in range(num_rounds):
        if isinstance(agreement, Replays):
            begun += agreement.survival(worlds.num_tokens) / num_rounds
        worlds.step()
        found[number] = utility_of((worlds.num_tokens - before) / (number + 1))
    return found, begun


def experiment(config: Config) -> Outcome:
    if config.num_rounds < EARLY or not config.settings:
        raise ConfigError(f"convergence needs {EARLY} rounds or more, and a setting; not {config}")
    results: list[dict[str, Any]] = []
    findings: list[Finding] = []
    facts: dict[str, dict[str, Any]] = {}
    variants = [*config.variants, *(Variant(name, name) for name in config.policies)]
    for setting in parts("settings", config.settings):
        curves, agreement = setting.agreement(range(config.num_seeds), config.recordings)
        best = optimum(curves, setting.budget).utility
        policies: dict[str, dict[str, float]] = {}
        for variant in variants:
            found, begun = simulate(setting, variant, agreement, config.num_seeds, config.num_rounds)
            mean, error = np.array([interval(row.tolist()) for row in found]).T
            rows = rows_of(setting.name, variant.name, best, mean, error)
            results += rows
            policies[variant.name] = _figures(mean, error, setting.num_clients)
            missing = 100.0 * (best - mean) / setting.num_clients  # percent per client, by round
            findings += _findings(setting, variant, missing)
            if isinstance(agreement, Replays) and variant.name == OURS:
                there = optimum(begun, setting.budget).utility
                off = 100.0 * (there - float(mean[-1])) / setting.num_clients
                findings.append(Finding(f"{setting.name}: {OURS}, missing of x* where drafts began", off))
                for row in rows:
                    row["optimum_where_begun"] = round(there, 5)
        facts.setdefault("by_setting", {})[setting.name] = {"optimum_log_utility": best, "policies": policies}
    facts |= facts["by_setting"][config.settings[0].name]
    policies_served = list(dict.fromkeys(variant.policy for variant in variants))
    served = config.served.rows(policies_served) if config.served is not None else []
    findings += served_findings(served)
    return Outcome(rows=results, curves=served, findings=findings, facts=facts | {"served": served}, notes=NOTES)


NOTES = [
    "missing: (U(x*) - mean U) / clients, in percent. `gradient` is Eq. (5) with the estimates that `goodspeed-verify`",
    "has by default (eta and beta 0.1, evidence weighed), in rounds that wait for every draft. `--preset paper` has",
    "the paper's beta 0.5. What is served by default is compared by tokens a second.",
    "The paper does not say its eta; 0.1 is taken. Its curves settle by about round 400.",
]


def _findings(setting: Setting, variant: Variant, missing: Floats) -> list[Finding]:
    ours = variant.name == OURS
    label = f"{setting.name}: {variant.name}"
    early, final, settled = float(missing[EARLY - 1]), float(missing[-1]), _settled(missing)
    return [
        Finding(f"{label}, missing at round {EARLY}", early, None, *_wanted(early, EARLY_WITHIN, ours)),
        Finding(f"{label}, missing at the end", final, None, *_wanted(final, WITHIN, ours)),
        *([Finding(f"{label}, within 2 % from round", settled, PAPER_ROUNDS)] if ours and settled else []),
    ]


def _wanted(missing: float, most: float, ours: bool) -> tuple[str, bool | None]:
    return (f"at most {most:g} %", missing <= most) if ours else ("", None)


def _settled(missing: Floats) -> int | None:
    """The round from which it stays within what is wanted early on, if there is one."""
    outside = np.flatnonzero(missing > EARLY_WITHIN)
    first = int(outside[-1]) + 2 if outside.size else 1
    return first if first <= len(missing) else None


def _figures(mean: Floats, error: Floats, num_clients: int) -> dict[str, float]:
    return {
        "log_utility_round_50": float(mean[EARLY - 1]),
        "log_utility_final": float(mean[-1]),
        "confidence_round_50": float(error[EARLY - 1]),
        "confidence_final": float(error[-1]),
        "num_clients": num_clients,
    }


def rows_of(setting: str, variant: str, best: float, mean: Floats, error: Floats) -> list[dict[str, Any]]:
    """The curve of a variant at the rounds that are kept, for `draw_panel`."""
    return [
        {
            "setting": setting,
            "variant": variant,
            "round": number,
            "log_utility": round(float(mean[number - 1]), 5),
            "confidence_95": round(float(error[number - 1]), 5),
            "optimum": round(best, 5),
            "optimum_where_begun": None,  # of `gradient` under replay
        }
        for number in SHOWN
        if number <= len(mean) and np.isfinite(mean[number - 1])
    ]


# -- as served by default ---------------------------------------------------------------------------------------------


def measures(ours: Floats, speeds: Floats) -> dict[str, Any]:
    """Returns the measures of a way's tokens/s, beside ours; both are [seeds, clients]."""
    utility = np.log(speeds).mean(axis=1)
    by_seed = {
        "log_utility": utility,
        "ours_above": np.log(ours).mean(axis=1) - utility,
        "jain": np.array([jain_index(one) for one in speeds.tolist()]),
        "worst_tokens_per_s": speeds.min(axis=1),
        "tokens_per_s": speeds.sum(axis=1),
    }
    found: dict[str, Any] = {}
    for name, values in by_seed.items():
        found[name], found[f"{name}_ci"] = interval(values.tolist())
    found["worst_share"] = float((speeds.min(axis=1) / speeds.sum(axis=1)).mean())
    return found | {"client_tokens_per_s": speeds.mean(axis=0).tolist()}


def served_findings(rows: Sequence[dict[str, Any]]) -> list[Finding]:
    """Log-utility, Jain's index, the worst client and all tokens; nobody is to be fairer than `gradient`."""
    found = []
    for row in rows:
        what, above, half = f"served, {row['world']}: {row['way']}", row["ours_above"], row["ours_above_ci"]
        found += [
            Finding(f"{what}, ln(tokens/s) per client", row["log_utility"]),
            Finding(f"{what}, Jain's index", row["jain"]),
            Finding(f"{what}, the worst client's share", row["worst_share"]),
            Finding(f"{what}, the worst client's tokens/s", row["worst_tokens_per_s"]),
            Finding(f"{what}, tokens/s", row["tokens_per_s"]),
        ]
        if row["way"] != OURS:
            wanted = ("not below 0", above >= -half) if row["way"] in BASELINES else ("", None)
            found.append(Finding(f"{what}, ln(tokens/s) by which {OURS} is above, +-{half:.4f}", above, None, *wanted))
    return found


def draw(config: Config, results: Results) -> Figure:
    """Utility over rounds: the first setting, and the first that replays recordings; then each client as served."""
    shown = [config.settings[0].name, *[one.name for one in config.settings if one.acceptance == "replay"][:1]]
    served = [row for row in results.curves if row["world"] == SCARCE and row["way"] != "plain"]
    panels = len(shown) + bool(served)
    figure = new_figure(5.0 * panels, 4.8)
    axes = figure.subplots(1, panels, squeeze=False).flat
    for panel, name in zip(axes, shown, strict=False):
        draw_panel(panel, [row for row in results.rows if row["setting"] == name])
        panel.set_title(name)
    if served:
        draw_served(axes[len(shown)], served, [row["variant"] for row in results.rows])
        axes[len(shown)].set_yticks([10, 20, 40, 80], ["10", "20", "40", "80"])
    return styles.finish(figure, TITLE, OURS)


def draw_served(panel: Axes, rows: Sequence[dict[str, Any]], variants: Sequence[str]) -> None:
    """Draws a curve over the clients for each way; its mean height is the log-utility per client.

    variants: what the other panels show, which looks the same here.
    """
    names = [PRESET if row["way"] == "paper" else row["way"] for row in rows]
    looks = styles.numbers([*variants, *names], OURS)
    for name, row in zip(names, rows, strict=True):
        speeds = row["client_tokens_per_s"]
        panel.plot(range(1, len(speeds) + 1), speeds, label=name, **styles.curve(looks[name], len(speeds)))
    panel.set(yscale="log", xlabel="client, by falling acceptance", ylabel="tokens/s")
    panel.minorticks_off()
    panel.set_title(f"served: {rows[0]['world']}")


def draw_panel(panel: Axes, rows: Sequence[dict[str, Any]]) -> None:
    """Draws one setting: a curve with its interval for each variant, and the lines that they are compared with."""
    for name, number in styles.numbers((row["variant"] for row in rows), OURS).items():
        own = [row for row in rows if row["variant"] == name]
        numbers = [row["round"] for row in own]
        mean, error = (np.array([row[column] for row in own]) for column in ("log_utility", "confidence_95"))
        style = styles.curve(number, len(own))
        panel.plot(numbers, mean, label=name, **style)
        panel.fill_between(numbers, mean - error, mean + error, color=style["color"], alpha=0.2, linewidth=0)
    panel.axhline(rows[0]["optimum"], color="black", linestyle="--", linewidth=1, label="U(x*)")
    begun = {row["optimum_where_begun"] for row in rows} - {None}
    for level in begun:
        panel.axhline(level, color="black", linestyle=":", linewidth=1, label="U(x*) where drafts began (replay)")
    panel.set(xscale="log", xlabel="round", ylabel="U of the mean goodput so far")


if __name__ == "__main__":
    about = "The utility of goodput over rounds against its optimum."
    sys.exit(run("fig4_convergence", about, experiment, draw, Config))
