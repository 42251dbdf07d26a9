"""Requests served in a world, by hand; the baseline that reads prompts first; tables of rounds."""

from dataclasses import replace

import numpy as np
import pytest

from experiments.simulation.arrivals import Arrival
from experiments.simulation.open_loop.service import serve
from experiments.simulation.open_loop.traffic import Tabled
from experiments.simulation.settings import Settings
from experiments.simulation.texts.acceptance import Independent
from goodspeed.fair.round_time import Linear
from goodspeed.slo.objectives import Objectives
from tests.experiments.simulation.open_loop.prefill_first import PrefillFirst

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


def test_who_reads_prompts_first_lets_others_wait():
    """While the long prompt is read in chunks of 20 tokens, the text that was there before does not grow."""
    arrivals = [arrival(0.0), arrival(0.05, prompt=200)]
    chunked = serve(PLAIN, arrivals, 1)
    first = serve(replace(PLAIN, core_kind=PrefillFirst), arrivals, 1)
    assert chunked.texts[0].seconds == pytest.approx(0.21)
    assert first.texts[0].seconds == pytest.approx(0.21 + 10 * 0.01)
    assert first.texts[1].seconds <= chunked.texts[1].seconds


def test_a_small_pool_is_shared_in_turn_and_all_texts_end():
    """Four texts of 61 tokens, of which not even two fit at their ends."""
    arrivals = [arrival(0.001 * number, prompt=40) for number in range(4)]
    settings = replace(PLAIN, core_kind=PrefillFirst, max_round_tokens=20)
    done, roomy = serve(settings, arrivals, 1, pool_tokens=96), serve(settings, arrivals, 1)
    assert [text.num_tokens for text in done.texts] == [21] * 4
    assert (done.num_preempted > 0, roomy.num_preempted) == (True, 0)
    assert roomy.seconds < done.seconds


def test_a_table_is_met_and_interpolated_and_goes_on():
    table = Tabled((1, 128, 256), (0.030, 0.055, 0.085))
    assert [table.round_s(tokens, 1, 0) for tokens in (1, 128, 192, 256)] == pytest.approx([0.030, 0.055, 0.070, 0.085])
    assert table.round_s(384, 1, 0) == pytest.approx(0.115)
    assert table.round_s(0, 0, 0) == pytest.approx(0.030)
    assert table.round_s(np.array([1, 384]), 9, 5.0) == pytest.approx([0.030, 0.115])
