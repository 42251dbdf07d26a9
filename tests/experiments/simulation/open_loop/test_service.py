"""Requests served in a world, by hand; tables of rounds."""

import numpy as np
import pytest

from experiments.simulation.arrivals import Arrival
from experiments.simulation.open_loop.service import serve
from experiments.simulation.open_loop.traffic import Tabled
from experiments.simulation.settings import Settings
from experiments.simulation.texts.acceptance import Independent
from goodspeed.fair.round_time import Linear
from goodspeed.slo.objectives import Objectives

PLAIN = Settings(
    num_clients=1,
    policy="fixed",
    max_draft=0,
    budget=10,
    max_round_tokens=40,
    round_cost=Linear(fixed_s=0.01),
    latency_s=(0.0,),
)
QUICK, SLOW = Objectives(tpot_s=0.0099), Objectives(tpot_s=0.0101)


def arrival(at_s, slo=None, prompt=8, alpha=0.5):
    return Arrival(at_s, prompt, 21, Independent(alpha), slo)


def test_attainment_and_goodput_by_hand():
    """Rounds of 10 ms, a token each: who asks for less than that is late. The second text misses the first's round."""
    done = serve(PLAIN, [arrival(0.1, SLOW), arrival(0.1, QUICK), arrival(0.5)], 1)
    assert done.attainment == pytest.approx(2 / 3)
    assert done.seconds == pytest.approx(0.71)
    assert done.goodput == pytest.approx(42 / 0.71)
    assert done.mean_s == pytest.approx((0.21 + 0.22 + 0.21) / 3)
    assert done.tpots() == [pytest.approx(0.01)] * 3
    assert (done.drafted, done.accepted) == (0.0, 0.0)
    assert done.busy_s == pytest.approx(0.43)


def test_a_table_is_met_and_interpolated_and_goes_on():
    table = Tabled((1, 128, 256), (0.030, 0.055, 0.085))
    assert [table.round_s(tokens, 1, 0) for tokens in (1, 128, 192, 256)] == pytest.approx([0.030, 0.055, 0.070, 0.085])
    assert table.round_s(384, 1, 0) == pytest.approx(0.115)
    assert table.round_s(0, 0, 0) == pytest.approx(0.030)
    assert table.round_s(np.array([1, 384]), 9, 5.0) == pytest.approx([0.030, 0.115])
