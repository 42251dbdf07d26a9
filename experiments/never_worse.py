"""Goodput of `gradient` against the better of plain decoding and the best fixed length.

Equal clients, from one to many, whose drafts are accepted with a rate from 0.1 to 0.95, at several distances, with two
kinds of machines. The best fixed length is the better of the two that are expected to be best: everybody drafts S
tokens, and each round waits for all. Equal clients, since there the sum of logarithms and the total agree; one unequal
column compares log-utility. Every cell is a simulated world in which the nodes' own state machines run; the verify node
has a profile of what rounds cost, or learns it. Ours and the fixed lengths write the same stretch of the same texts.
Draft nodes have a draft model, an n-gram index whose tokens are accepted as often and take no time, or both. Nothing
repeats itself in simulated texts, so the verify node drafts nothing from them itself.
"""

import sys
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from experiments.harness import styles
from experiments.harness.experiment import Finding, Outcome, Results, new_figure, run
from experiments.harness.processes import each
from experiments.simulation.accounts import expected_tokens
from experiments.simulation.settings import PAPER, Settings
from experiments.simulation.steady import Steady, Stretch, steady
from goodspeed.fair.round_time import CostModel, Linear, Roofline

WANTED = 0.98
WANTED_SHARE = 0.9  # of the cells
WANTED_OVER_PLAIN = 0.99
DRAFTERS: dict[str, dict[str, Any]] = {
    "model": {},
    "ngram": {"ngrams": ("right",), "has_model": (False,)},
    "both": {"ngrams": ("right",)},
}
"""Drafters of each kind of draft node."""

LIKELY = 2  # lengths that are expected to be best are measured
CLOSE = 0.9  # of plain decoding: where no fixed length is expected to have as much, plain decoding is the better way
SHORT = Stretch(warm=10, measured=40)  # enough for fixed lengths that are not close, and for rounds without drafts
ROUND_TOKENS = 100_000  # no bound


@dataclass(frozen=True)
class Machine:
    """A verify node, its round the maximum of these lines, and its draft nodes."""

    terms: list[Linear]
    draft: Linear  # one step of the draft model

    @property
    def cost(self) -> CostModel:
        return Roofline(tuple(self.terms)) if len(self.terms) > 1 else self.terms[0]


@dataclass(frozen=True)
class Config:
    """One section of `configs/never_worse.toml`."""

    seed: int
    clients: list[int]
    alphas: list[float]
    unequal: list[float]  # the clients of the unequal column, again and again
    round_trips_s: list[float]
    lengths: list[int]  # fixed ones
    budget_per_client: int  # for gradient
    eta: float  # of Eq. (3), with evidence weighed
    warm_rounds: int  # of ours; the fixed lengths are measured over the same stretch
    measured_tokens: int  # per client, at least
    measured_total: int  # of all clients together, at least
    drafters: list[str]  # of DRAFTERS
    processes: int  # 0: one on each core
    machines: dict[str, Machine]

    def measured(self, num_clients: int) -> int:
        """Tokens per client."""
        return max(self.measured_tokens, self.measured_total // num_clients)


class Cell:
    """One machine, distance, number of clients, their acceptance, and what drafts for them."""

    def __init__(
        self,
        config: Config,
        machine: Machine,
        round_trip_s: float,
        num: int,
        alphas: list[float],
        drafter: str = "model",
    ) -> None:
        self._config, self._machine, self._round_trip_s, self._drafter = config, machine, round_trip_s, drafter
        self._alphas = [alphas[client % len(alphas)] for client in range(num)]
        self._measured = config.measured(num)
        self._base = Settings(
            num_clients=num,
            max_round_tokens=ROUND_TOKENS,
            round_cost=machine.cost,
            draft_cost=(machine.draft,),
            latency_s=(round_trip_s / 2,),
            alpha=tuple(alphas),
            ngram_rate=tuple(alphas),
            self_draft=False,
            eta=config.eta,
            **DRAFTERS[drafter],
        )

    def plain(self) -> Steady:
        return self._run(SHORT, max_draft=0, policy="fixed")

    def fixed(self, warm: int) -> dict[int, Steady]:
        """The likely best, by length; every round waits for all drafts. warm: tokens per client written before."""
        likely = sorted(self._config.lengths, key=self.expected)[-LIKELY:]
        is_close = self.expected(likely[-1]) - self.expected(0) > len(self._alphas) * np.log(CLOSE)
        stretch = Stretch(warm, self._measured) if is_close else SHORT
        return {length: self._fixed(length, stretch) for length in likely}

    def expected(self, length: int) -> float:
        """Log-utility if all draft so many tokens and every round waits; 0: plain decoding, which waits for nothing."""
        num = len(self._alphas)
        draft_s = length * self._machine.draft.round_s(1, 1, 0) if self._drafter == "model" else 0.0
        way_s = self._round_trip_s + draft_s if length else 0.0
        seconds = self._machine.cost.round_s(num * (length + 1), num, 0) + way_s
        return float(np.log(expected_tokens(self._alphas, length) / seconds).sum())

    def _fixed(self, length: int, stretch: Stretch) -> Steady:
        return self._run(stretch, max_draft=length, policy="fixed", budget_each=length, **PAPER)

    def gradient(self, known_cost: bool) -> Steady:
        stretch = Stretch(0, self._measured, self._config.warm_rounds)
        return self._run(stretch, known_cost=known_cost, budget_each=self._config.budget_per_client)

    def _run(self, stretch: Stretch, budget_each: int = 1, **changes: Any) -> Steady:
        settings = replace(self._base, budget=budget_each * self._base.num_clients, **changes)
        return steady(settings, stretch, self._config.seed)


def experiment(config: Config) -> Outcome:
    cells = [
        (name, machine, round_trip_s, num, alphas, drafter)
        for drafter in config.drafters
        for name, machine in config.machines.items()
        for round_trip_s in config.round_trips_s
        for num in config.clients
        for alphas in [*([alpha] for alpha in config.alphas), config.unequal]
        if len(alphas) <= num
    ]
    return outcome(config, each("cells", partial(_row, config), cells, config.processes))


def outcome(config: Config, rows: list[dict[str, Any]]) -> Outcome:
    equal = [row for row in rows if row["alpha"] is not None]
    findings = [
        *(_lowest(equal, name, known) for name in config.machines for known in ("known", "learned")),
        *_over_plain(equal),
        *(_shares(f"{drafter}: ", [row for row in equal if row["drafter"] == drafter]) for drafter in config.drafters),
        _shares("", equal),
        _shares("cost learned: ", equal, "ratio_learned"),
        *_unequal([row for row in rows if row["alpha"] is None]),
    ]
    return Outcome(rows=rows, findings=findings, notes=_misses(equal))


def _row(config: Config, of: tuple[str, Machine, float, int, list[float], str]) -> dict[str, Any]:
    name, machine, round_trip_s, num, alphas, drafter = of
    cell = Cell(config, machine, round_trip_s, num, alphas, drafter)
    known, learned = cell.gradient(True), cell.gradient(False)
    plain, fixed = cell.plain(), cell.fixed(known.warm)
    equal = len(alphas) == 1
    best = max(fixed, key=lambda length: fixed[length].total if equal else fixed[length].log_utility)
    better = max(plain.total, fixed[best].total)
    better_log = max(plain.log_utility, fixed[best].log_utility)
    row = {
        "machine": name,
        "drafter": drafter,
        "round_trip_ms": 1000 * round_trip_s,
        "clients": num,
        "alpha": alphas[0] if equal else None,
        "plain": plain.total,
        "fixed": fixed[best].total,
        "fixed_length": best,
        "gradient_known": known.total,
        "gradient_learned": learned.total,
        "length_known": float(known.drafted.mean()),
        "ratio_known": known.total / better,
        "ratio_learned": learned.total / better,
        "utility_known": (known.log_utility - better_log) / num,
        "utility_learned": (learned.log_utility - better_log) / num,
    }
    return {key: round(value, 4) if isinstance(value, float) else value for key, value in row.items()}


def _lowest(rows: list[dict[str, Any]], machine: str, known: str) -> Finding:
    lowest = min(row[f"ratio_{known}"] for row in rows if row["machine"] == machine)
    return Finding.at_least(f"{machine}: lowest ratio, cost {known}", lowest, WANTED)


def _over_plain(rows: list[dict[str, Any]]) -> list[Finding]:
    """The loss of users by speculation at all."""
    ratios = np.array([row["gradient_known"] / row["plain"] for row in rows])
    return [
        Finding.at_least("over plain decoding alone: lowest", float(ratios.min()), WANTED_OVER_PLAIN),
        Finding("over plain decoding alone: share of cells at 0.98 or more", float((ratios >= WANTED).mean())),
        Finding("over plain decoding alone: highest", float(ratios.max())),
    ]


def _shares(of: str, rows: list[dict[str, Any]], column: str = "ratio_known") -> Finding:
    share = float(np.mean([row[column] >= WANTED for row in rows]))
    return Finding.at_least(f"{of}share of cells at {WANTED} or more of the better", share, WANTED_SHARE)


def _unequal(rows: list[dict[str, Any]]) -> list[Finding]:
    """Log-utility per client over that of the better way; log(0.98) would be 2 % worse for everybody."""
    if not rows:
        return []
    lowest, least = min(row["utility_known"] for row in rows), float(np.log(WANTED))
    mean = float(np.mean([row["utility_known"] for row in rows]))
    what = "unequal clients: log-utility per client over the better, lowest"
    return [
        Finding(what, lowest, None, f"{least:.3f}", lowest >= least),
        Finding("unequal clients: the same, mean", mean),
    ]


def _misses(rows: list[dict[str, Any]]) -> list[str]:
    missed = sorted((row for row in rows if row["ratio_known"] < WANTED), key=lambda row: float(row["ratio_known"]))
    return [
        f"below {WANTED}: {row['drafter']}, {row['machine']}, {row['round_trip_ms']:g} ms, {row['clients']} clients, "
        f"alpha {row['alpha']}: "
        f"{row['ratio_known']:.3f} (gradient {row['gradient_known']:.0f} with {row['length_known']:.1f} tokens, "
        f"plain {row['plain']:.0f}, {row['fixed_length']} each {row['fixed']:.0f} tokens/s)"
        for row in missed[:20]
    ]


def draw(_: Config, results: Results) -> Figure:
    """Every cell with equal clients: over plain decoding, to the right the best fixed length, upwards ours."""
    rows = [row for row in results.rows if row["alpha"] is not None]
    figure = new_figure(7.2, 6.0)
    axes = figure.subplots()
    fixed, ours = (np.array([row[name] / row["plain"] for row in rows]) for name in ("fixed", "gradient_known"))
    ends = np.array([min(fixed.min(), 1.0) / 1.1, max(fixed.max(), ours.max()) * 1.1])
    axes.plot(ends, ends, "k--", linewidth=1.0, label="the best fixed length")
    axes.axhline(1.0, color="black", linewidth=1.0, label="plain decoding")
    for number, machine in enumerate(dict.fromkeys(row["machine"] for row in rows)):
        style = styles.curve(number) | {"linestyle": "", "markersize": 5.0, "alpha": 0.6}
        here = np.array([row["machine"] == machine for row in rows])
        axes.plot(fixed[here], ours[here], label=f"ours, {machine}: a dot for each cell", **style)
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=(0.8, ends[1]))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(FixedLocator([0.1, 0.2, 0.5, 1, 2, 5, 10]))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_locator(NullLocator())
    axes.set(xlabel="best fixed length, found in hindsight, over plain decoding", ylabel="ours over plain decoding")
    of_plain, of_better = ours.min(), min(row["ratio_known"] for row in rows)
    title = f"Ours has at least {of_plain:.2f} of plain decoding, and {of_better:.2f} of the better of both"
    return styles.finish(figure, title)


if __name__ == "__main__":
    sys.exit(run("never_worse", __doc__ or "", experiment, draw, Config))
