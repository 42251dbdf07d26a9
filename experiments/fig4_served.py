"""Fairness as served: the default beside the paper's baselines, its preset and plain decoding, for unequal clients.

Continuous rounds and the match rule, over the state machines in virtual time; so tokens count by second, not by round.
The policy says who may draft how much. Which drafted tokens a round verifies is chosen by w U'(X) with `gradient`, and
by the number of tokens alone with `fixed`, `random` and `throughput`, which have no utility.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from experiments.harness.experiment import Finding
from experiments.harness.progress import parts
from experiments.simulation.accounts import interval, jain
from experiments.simulation.settings import PAPER, Settings
from experiments.simulation.steady import Stretch, steady
from goodspeed.fair.policies.base import Floats
from goodspeed.fair.round_time import Linear
from verify_node.config import PAPER_BETA

OURS = "gradient"
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


def measures(ours: Floats, speeds: Floats) -> dict[str, Any]:
    """Returns the measures of a way's tokens/s, beside ours; both are [seeds, clients]."""
    utility = np.log(speeds).mean(axis=1)
    by_seed = {
        "log_utility": utility,
        "ours_above": np.log(ours).mean(axis=1) - utility,
        "jain": np.array([jain(one) for one in speeds.tolist()]),
        "worst_tokens_per_s": speeds.min(axis=1),
        "tokens_per_s": speeds.sum(axis=1),
    }
    found: dict[str, Any] = {}
    for name, values in by_seed.items():
        found[name], found[f"{name}_ci"] = interval(values.tolist())
    found["worst_share"] = float((speeds.min(axis=1) / speeds.sum(axis=1)).mean())
    return found | {"client_tokens_per_s": speeds.mean(axis=0).tolist()}


def findings(rows: Sequence[dict[str, Any]]) -> list[Finding]:
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
