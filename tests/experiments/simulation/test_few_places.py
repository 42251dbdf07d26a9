"""Few places and many texts: small cases by hand, then what no order may change; and the experiment LAPS-SD."""

import tomllib
from typing import Any

import msgspec
import pytest

from experiments import laps_sd
from experiments.harness.experiment import HERE
from experiments.laps_sd import POLICIES, Cell, order_of, remaining, requests
from experiments.simulation.arrivals import Arrival
from experiments.simulation.few_places import Kind, Request, Service, Work, guess, serve
from experiments.simulation.rival_orders import create
from experiments.simulation.texts.acceptance import Independent
from goodspeed.fair.round_time import Linear

SERVICE = Service(Linear(fixed_s=1.0), Linear(), 2, 1)
"""A round takes a second, whoever shares it, and so does a prompt."""

STABLE: dict[str, Any] = {"num_rounds": 8, "tolerance": 0.05}


def request(at_s, num_tokens, predicted=0):
    """A text whose drafts are always wrong, so it grows by one token in each round, the one of its prompt included."""
    return Request(Arrival(at_s, 10, num_tokens, Independent(0.0)), predicted or num_tokens, 10)


def latencies(order, requests):
    done = serve(SERVICE, requests, order, lambda one, written: one.predicted_tokens - written, **STABLE)
    return sorted(done.latencies_s)


@pytest.mark.parametrize(("predicted", "expected"), [(2, [3.0, 4.8, 9.9]), (9, [3.0, 7.9, 9.8])])
def test_the_shortest_goes_first_by_what_is_predicted(predicted, expected):
    """The last one to come is the shortest, whatever is predicted of it."""
    coming = [request(0.0, 3), request(0.1, 5), request(0.2, 2, predicted=predicted)]
    assert latencies(create("sjf"), coming) == pytest.approx(expected, abs=0.05)


def test_a_text_that_is_displaced_goes_on_where_it_was():
    """The first text has three tokens when the second takes its place for two rounds. Its text is read again in the
    round that brings its fourth."""
    order = create("las", bounds=(1.5, 1e9), aging_s=1e9)
    assert latencies(order, [request(0.0, 6), request(1.5, 2)]) == pytest.approx([3.5, 8.0], abs=0.05)


def test_a_time_is_guessed_by_the_rounds_before():
    """Four rounds of a second brought eight tokens; at a rate of 0.5 two drafted tokens make two a round."""
    work = Work(seconds=4.0, num_rounds=4, num_tokens=8)
    assert guess(work, request(0.0, 18, predicted=28), 0.5, 2) == pytest.approx((4.0 + 5.0, 4.0 + 10.0))


def config(**changes: Any) -> laps_sd.Config:
    settings = tomllib.loads((HERE / "configs" / "laps_sd.toml").read_text())["quick"]
    return msgspec.convert(settings | changes, laps_sd.Config)


@pytest.mark.parametrize("policy", POLICIES)
def test_every_text_is_served_whole_whatever_the_order(policy):
    kinds = {"chat": Kind(prompt_tokens=10, acceptance=(0.1, 0.9), output_tokens=12, output_spread=5)}
    settings, cell = config(kinds=msgspec.to_builtins(kinds)), Cell("chat", 4, 2, 3, policy, (4, 4.0, 0.5))
    coming = requests(settings, cell)
    assert coming == requests(settings, cell)
    service = Service(Linear(fixed_s=0.1), Linear(), 4, 2)
    done = serve(service, coming, order_of(settings, cell), remaining(settings, cell), **STABLE)
    assert sorted(work.num_tokens for work in done.works) == sorted(one.arrival.output_tokens for one in coming)
    assert len(done.latencies_s) == 8
