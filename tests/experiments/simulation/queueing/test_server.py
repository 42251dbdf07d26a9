"""Texts in few places on a virtual clock: small cases by hand, then what no order may change."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from experiments.order.laps_sd_runs import ShortestRemaining
from experiments.simulation.queueing.requests import Kind, Request, make, rounds
from experiments.simulation.queueing.rivals import create
from experiments.simulation.queueing.server import Server, Times
from goodspeed.fair.round_time import Linear, Roofline
from verify_node.scheduler.orders import ORDERS
from verify_node.scheduler.orders.laps import stable_rate

TIMES = Times(Roofline((Linear(fixed_s=1.0),)), Roofline((Linear(fixed_s=0.0),)), num_drafted=2, switch_s=0.1)
"""A round takes a second, however many share it, and so does a prompt."""

KIND = Kind(prompt_tokens=10, acceptance=(0.1, 0.9), output_tokens=20, output_spread=8)
QUEUES: dict[str, Any] = {"bounds": (2.0, 4.0, 8.0)}


def request(number, num_rounds, at_s=0.0):
    """A text that grows by one token in each round."""
    return Request(number, at_s, 10, num_rounds, num_rounds, 10, (0,) * num_rounds)


def serve(order, requests, num_places=1, **options):
    options = {"remaining": lambda text: len(text.request.accepted) - text.num_rounds} | options
    return {text.request.number: text for text in Server(order, num_places, TIMES, **options).serve(requests)}


def latencies(texts):
    return {number: pytest.approx(text.latency_s) for number, text in sorted(texts.items())}


def test_one_after_the_other_each_with_its_prompt():
    done = serve(create("fcfs"), [request(0, 3), request(1, 2)])
    assert latencies(done) == {0: 4.0, 1: 7.0}


def test_at_two_places_they_share_rounds():
    done = serve(create("fcfs"), [request(0, 3), request(1, 2), request(2, 1)], num_places=2)
    assert latencies(done) == {0: 4.0, 1: 3.0, 2: 5.0}


def test_who_comes_back_pays_for_its_whole_context():
    # the first has had 2 s (its prompt and one round) when the second comes; back with 11 tokens it waits 1.1 s
    done = serve(ShortestRemaining(), [request(0, 5), request(1, 1, at_s=1.5)])
    assert latencies(done) == {0: 2.0 + 2.0 + 1.1 + 4.0, 1: 2.5}
    assert (done[0].num_switches, done[1].num_switches) == (1, 0)


def test_a_time_is_guessed_once_acceptance_is_stable():
    done = serve(create("fcfs"), [request(0, 10)], gamma=3, stable=lambda rates: stable_rate(rates, 3, 0.1))
    guess = done[0].guess
    assert guess.known_length_s == pytest.approx(11.0)


def test_optimal_is_not_beaten():
    requests = make(KIND, 12, 10.0, 2, 0.3, Random(3))
    free = replace(TIMES, switch_s=0.0)
    best = Server(ShortestRemaining(), 1, free, lambda text: len(text.request.accepted) - text.num_rounds)
    least = sum(text.latency_s for text in best.serve(requests))
    for name in ORDERS.names:
        options = QUEUES if name in ("las", "laps") else {}
        server = Server(create(name, **options), 1, free, lambda text: text.request.predicted_tokens - text.num_tokens)
        assert sum(text.latency_s for text in server.serve(requests)) >= least - 1e-6


@pytest.mark.parametrize("name", ORDERS.names)
@pytest.mark.parametrize("num_places", [1, 3])
def test_every_text_is_served_whole_whatever_the_order(name, num_places):
    requests = make(KIND, 20, 30.0, 2, 0.3, Random(num_places))
    done = serve(create(name, **(QUEUES if name in ("las", "laps") else {})), requests, num_places)
    assert sorted(done) == list(range(20))
    assert all(text.num_rounds == len(text.request.accepted) for text in done.values())
    assert all(text.num_tokens >= text.request.output_tokens for text in done.values())


# -- requests ----------------------------------------------------------------------------------------------------------


def test_rounds_go_along_the_path_until_it_disagrees():
    assert rounds("1101", 0, 8, 2) == (2, 2, 0, 2)
    assert rounds("10", 0, 6, 4) == (1, 1, 1)
    assert rounds("0", 0, 3, 4) == (0, 0, 0)


def test_recorded_lengths_and_agreement():
    kind = Kind(prompt_tokens=64, domains=["all"], trace="azure_llm_2023_conv")
    made = make(kind, 200, 1.0, 4, 0.2, Random(1))
    assert 150 < sum(one.output_tokens for one in made) / 200 < 270
    assert all(max(one.accepted) <= 4 for one in made)
