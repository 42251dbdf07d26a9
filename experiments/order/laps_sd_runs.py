"""One cell of the LAPS-SD experiment: a number of requests, served at some places by one policy. Knows no figures.

Every policy meets the same requests, rounds and costs of switching. LAPS has the same queues everywhere; LAS is tried
with several, of which the best count. Nobody's wait is bounded by aging but where the settings say so, which then holds
for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import numpy as np

from experiments.simulation.presets import Device, Model, roofline
from experiments.simulation.queueing.requests import Kind, Request, history, make
from experiments.simulation.queueing.rivals import bounds, create
from experiments.simulation.queueing.server import RemainingTokens, Server, Text, Times
from goodspeed.fair.lengths import OutputLengths
from verify_node.scheduler.orders.base import Job, Order
from verify_node.scheduler.orders.laps import stable_rate

L20 = Device(bytes_per_s=864e9, flops=119.5e12)  # the paper's GPU
LLAMA_7B = Model(32, 4096, 32, 32, 128, 11008, 32_000, tied=False)
LLAMA_68M = Model(2, 768, 12, 12, 64, 3072, 32_000, tied=False)

SWITCHED_TOKENS, SWITCH_SHARE = 500, 0.1421
"""The paper's Fig. 2: to switch a text of 500 tokens costs 14.21 % of its time. Taken as proportional to its tokens."""

PREDICTED = {"lp_sjf", "laps", "laps_paper"}
POLICIES = ("fcfs", "las", "lp_sjf", "sjf", "laps", "laps_paper", "laps_true", "laps_learned", "oracle", "optimal")
"""First come; least attained service; shortest predicted, and true, length; LAPS-SD with predicted lengths, the same in
the paper's own form, with true lengths, and with lengths that the verify node learns from texts that are over; the
shortest true time, without preemption; and the least true time left, with preemption at no cost, which at one place
nothing can beat."""

PREEMPTIVE = {"las", "laps", "laps_paper", "laps_true", "laps_learned", "optimal"}


@dataclass(frozen=True)
class Settings:
    """Settings of every cell; a part of one section of `configs/laps_sd.toml`."""

    kinds: dict[str, Kind]
    num_drafted: int  # n
    prediction_error: float  # sigma of the log-normal error of predicted lengths
    history: int  # texts that were over before, from which lengths are learned
    growth: float  # M
    first_s: float  # S_1
    num_rounds: int  # gamma
    tolerance: float  # delta
    aging_s: float
    acceptance_of_switch: float  # of the text whose time Fig. 2's share is of
    recordings: str = field(default="", kw_only=True)  # a file of recorded texts; empty: the shipped one


@dataclass(frozen=True)
class Cell:
    """Texts served in one cell."""

    kind: str
    number: int  # of requests, for each place
    num_places: int
    window_s: float  # in which they come
    seed: int


class ShortestRemaining(Order):
    """By the tokens that are left, or whatever the server is told to count; takes any place away at once."""

    displaces = True
    by_arrival = False

    def rank(self, jobs: Sequence[Job], now: float) -> list[Job]:
        return sorted(jobs, key=lambda job: (job.remaining_tokens, job.arrived_at))

    def yields(self, holder: Job, waiter: Job, now: float) -> bool:
        return waiter.remaining_tokens < holder.remaining_tokens

    def priority(self, waiter: Job, now: float) -> tuple[float, ...]:
        return (waiter.remaining_tokens,)


def times(settings: Settings) -> Times:
    free = Times(roofline(LLAMA_7B, L20), roofline(LLAMA_68M, L20), settings.num_drafted, 0.0)
    tokens_a_round = settings.num_drafted * settings.acceptance_of_switch + 1.0
    text_s = SWITCHED_TOKENS / tokens_a_round * free.round_s(1, SWITCHED_TOKENS // 2)
    return replace(free, switch_s=SWITCH_SHARE * text_s / SWITCHED_TOKENS)


def requests(settings: Settings, cell: Cell) -> list[Request]:
    """The same ones for every policy."""
    number, random = cell.number * cell.num_places, Random(f"{cell.seed} {cell.kind} {cell.number}")
    kind = settings.kinds[cell.kind]
    return make(
        kind,
        number,
        cell.window_s,
        settings.num_drafted,
        settings.prediction_error,
        random,
        settings.recordings,
    )


def served(settings: Settings, cell: Cell, policy: str, num_queues: int) -> list[Text]:
    """All texts of the cell, at their end."""
    lengths = OutputLengths()
    for prompt, output in history(settings.kinds[cell.kind], settings.history, Random(f"before {cell.seed}")):
        lengths.observe(output, prompt)
    server = Server(
        order_of(settings, policy, num_queues),
        cell.num_places,
        times(settings) if policy != "optimal" else replace(times(settings), switch_s=0.0),
        remaining(policy, lengths),
        policy in PREEMPTIVE,
        settings.num_rounds,
        lambda rates: stable_rate(rates, settings.num_rounds, settings.tolerance),
        lambda text: lengths.observe(text.num_tokens, text.request.recorded_prompt),
    )
    return server.serve(requests(settings, cell))


def order_of(settings: Settings, policy: str, num_queues: int) -> Order:
    aging = {"aging_s": settings.aging_s}
    queues = {"bounds": bounds(num_queues, settings.growth, settings.first_s)} | aging
    if policy == "optimal":
        return ShortestRemaining()
    if policy == "fcfs":
        return create("fcfs")
    if policy == "las":
        return create("las", **queues)
    if policy.startswith("laps"):
        perception = {"num_rounds": settings.num_rounds, "tolerance": settings.tolerance}
        return create("laps", **queues, **perception, guesses=policy != "laps_paper")
    return create("sjf", **aging)


def remaining(policy: str, lengths: OutputLengths) -> RemainingTokens:
    """The remaining size that the policy's order is told; 1 where it knows nothing."""
    if policy in PREDICTED:
        return lambda text: max(1, text.request.predicted_tokens - text.num_tokens)
    if policy == "laps_learned":
        return lambda text: lengths.remaining(text.num_tokens, text.request.recorded_prompt)
    if policy in ("sjf", "laps_true"):
        return lambda text: text.request.output_tokens - text.num_tokens
    if policy in ("oracle", "optimal"):
        return lambda text: len(text.request.accepted) - text.num_rounds  # rounds are equally long
    return lambda text: 1


def measured(settings: Settings, cell: Cell, policy: str, num_queues: int) -> dict[str, Any]:
    """One row of the results."""
    texts = served(settings, cell, policy, num_queues)
    guesses = [(text.guess, text.working_s) for text in texts if text.guess is not None]
    return {
        "kind": cell.kind,
        "number": cell.number,
        "places": cell.num_places,
        "window_s": cell.window_s,
        "seed": cell.seed,
        "policy": policy,
        "queues": num_queues,
        "growth": settings.growth,
        "first_s": settings.first_s,
        "mean_latency_s": float(np.mean([text.latency_s for text in texts])),
        "p99_latency_s": float(np.quantile([text.latency_s for text in texts], 0.99)),
        "switches": float(np.mean([text.num_switches for text in texts])),
        "perceptible": len(guesses) / len(texts),
        "estimate_error": _error([(guess.known_length_s, took_s) for guess, took_s in guesses]),
        "error_with_prediction": _error([(guess.predicted_length_s, took_s) for guess, took_s in guesses]),
    }


def _error(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Mean absolute error, as a share of what was true; None without any."""
    return float(np.mean([abs(guessed / true - 1.0) for guessed, true in pairs])) if pairs else None


def best_las(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leaves out LAS but with the queues that are the best in hindsight for each kind and number of places."""
    tried: dict[tuple[str, int], dict[tuple[float, ...], list[dict[str, Any]]]] = {}
    for row in chosen(rows, policy="las"):
        tried.setdefault((row["kind"], row["places"]), {}).setdefault(_queues(row), []).append(row)
    best = {where: min(own, key=lambda queues: mean_seconds(own[queues])) for where, own in tried.items()}
    return [row for row in rows if row["policy"] != "las" or _queues(row) == best[row["kind"], row["places"]]]


def _queues(row: dict[str, Any]) -> tuple[float, ...]:
    return row["queues"], row["growth"], row["first_s"]


def mean_seconds(rows: Sequence[dict[str, Any]], **where: object) -> float:
    """The mean latency over all rows that are so."""
    return float(np.mean([row["mean_latency_s"] for row in chosen(rows, **where)]))


def chosen(rows: Sequence[dict[str, Any]], **where: object) -> list[dict[str, Any]]:
    return [row for row in rows if all(row[key] == value for key, value in where.items())]
