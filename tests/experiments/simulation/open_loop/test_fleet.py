"""Several services that send requests to each other: one is a service, none is lost, none goes on for ever."""

from collections import Counter
from dataclasses import replace
from statistics import fmean

import pytest

from experiments.simulation.arrivals import Arrival
from experiments.simulation.open_loop.fleet import Routing, serve_fleet
from experiments.simulation.open_loop.service import serve
from experiments.simulation.settings import Settings
from experiments.simulation.texts.acceptance import Independent
from experiments.slos_serve import OURS, POLICIES
from goodspeed.fair.round_time import Linear
from goodspeed.slo.objectives import Objectives

COST = Linear(fixed_s=0.01, token_s=1e-3)
BASE = Settings(num_clients=4, max_round_tokens=200, round_cost=COST, known_cost=True, latency_s=(0.0,))
SETTINGS = replace(BASE, self_draft=False, **POLICIES[OURS])
SLO = Objectives(0.5, 0.2)
STAY, FITS, RING = Routing(None), Routing(), Routing("ring")


def requests(number, every_s=0.03, prompt=100, slo=SLO):
    """A lone prompt is read in 0.11 s, so a replica is too slow for one each 0.03 s."""
    return [Arrival(every_s * place, prompt + place, 5, Independent(0.5), slo) for place in range(number)]


def fleet(arrivals, routing, replicas=3, homes=(0, 1, 2), seed=1):
    return serve_fleet(SETTINGS, arrivals, seed, replicas, homes, routing, pool_tokens=5334)


@pytest.mark.parametrize("routing", [STAY, FITS, RING])
def test_one_replica_is_the_service_bit_for_bit(routing):
    arrivals = requests(20)
    alone = serve(SETTINGS, arrivals, 7, pool_tokens=5334)
    done = serve_fleet(SETTINGS, arrivals, 7, 1, [0] * 4, routing, pool_tokens=5334)
    (own,) = done.services
    assert own.texts == alone.texts
    assert (own.seconds, own.num_rounds, own.busy_s) == (alone.seconds, alone.num_rounds, alone.busy_s)
    assert (own.num_drafted, own.num_accepted) == (alone.num_drafted, alone.num_accepted)
    assert 0.0 < alone.attainment < 1.0


def attainment(done):
    return fmean(text.served.attained for text in done.texts)


def asked(done):
    return Counter((text.served.kept.slo, text.served.num_tokens, text.client) for text in done.texts)


@pytest.mark.parametrize("routing", [FITS, RING])
def test_every_request_is_served_once_and_belongs_to_who_asked(routing):
    arrivals = [replace(one, slo=Objectives(0.5, 0.2 + 0.001 * place)) for place, one in enumerate(requests(40))]
    stays, moves = (fleet(arrivals, one, homes=(0, 0, 0)) for one in (STAY, routing))
    assert asked(moves) == asked(stays)
    assert len(moves.texts) == sum(len(one.texts) for one in moves.services) == 40
    assert any(text.hops for text in moves.texts)
    assert not any(text.hops for text in stays.texts)


def test_idle_replicas_take_what_a_home_cannot_promise():
    """All clients have the same home, which alone keeps about half of the levels; the other two are idle."""
    alone, together, ring = (fleet(requests(30, 0.06), one, homes=(0,) * 3) for one in (STAY, FITS, RING))
    assert attainment(alone) < 0.6 < 0.85 < attainment(together)
    assert attainment(ring) > 0.8
    assert [len(one.texts) > 0 for one in alone.services] == [True, False, False]
    assert all(len(one.texts) >= 4 for one in together.services)
