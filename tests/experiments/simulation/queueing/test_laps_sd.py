"""The LAPS-SD experiment: what it says of the paper's example, and the shape of what it tells."""

import tomllib
from typing import Any

import msgspec
import pytest

from experiments import laps_sd
from experiments.harness.experiment import HERE
from experiments.order.laps_sd_claims import fig1
from experiments.order.laps_sd_runs import POLICIES, Cell, best_las, served


def config(**changes: Any) -> laps_sd.Config:
    settings = tomllib.loads((HERE / "configs" / "laps_sd.toml").read_text())["quick"]
    small = {"numbers": [6], "places": {"1": [6], "2": [3]}, "queues": [2, 4], "stream_number": 6}
    return msgspec.convert(settings | small | changes, laps_sd.Config)


def test_figure_1():
    assert fig1() == {
        "fcfs": pytest.approx(583.3, abs=0.1),
        "sjf_length": pytest.approx(683.3, abs=0.1),
        "laps": pytest.approx(450.0),
    }


def test_every_policy_meets_the_same_requests():
    settings = config()
    cell = Cell("chat", 6, 1, 1.0, seed=3)
    futures = {
        policy: sorted((text.request for text in served(settings, cell, policy, 4)), key=lambda one: one.number)
        for policy in POLICIES
    }
    assert all(future == futures["fcfs"] for future in futures.values())


def test_las_has_the_best_queues_of_those_tried_for_each_kind():
    def row(kind, first_s, seconds, policy="las"):
        queues = {"queues": 4, "growth": 4.0, "first_s": first_s}
        return {"policy": policy, "kind": kind, "places": 1, "mean_latency_s": seconds} | queues

    chat = [row("chat", 0.5, 3.0), row("chat", 0.5, 5.0), row("chat", 10.0, 2.0), row("chat", 10.0, 5.0)]
    code = [row("code", 0.5, 1.0), row("code", 10.0, 2.0)]
    others = [row("chat", 0.5, 9.0, "laps")]
    assert best_las([*others, *chat, *code]) == [*others, *chat[2:], code[0]]
