"""An open loop: requests come by a schedule, whatever became of the ones before."""

from dataclasses import replace
from statistics import fmean

import pytest

from experiments.simulation.arrivals import Arrival, dealt_out
from experiments.simulation.open_loop.mix import Uneven
from experiments.simulation.open_loop.traffic import recorded, rescaled
from experiments.simulation.settings import Settings
from experiments.simulation.texts.acceptance import Independent
from experiments.simulation.world import World
from goodspeed.slo.objectives import Objectives

SLO = Objectives(tpot_s=0.05, tier="chat")
SETTINGS = Settings(num_clients=2, stops=0.0, context_len=80, num_pages=400, max_draft=0)


def arrival(at_s, tokens=5, slo=None):
    return Arrival(at_s, 7, tokens, Independent(0.5), slo)


def served(arrivals, settings=SETTINGS):
    world = World(1, replace(settings, arrivals=dealt_out(arrivals, settings.num_clients)))
    world.run(1000.0)
    return world


def test_every_request_comes_at_its_time_with_its_size_and_objectives():
    world = served([arrival(0.5), arrival(3.0, tokens=9, slo=SLO), arrival(40.0)])
    first, second = world.drafts[0].done, world.drafts[1].done
    assert [one.times.asked_at for one in first] == [0.5, 40.0]
    (one,) = second
    assert (one.times.asked_at, one.times.num_tokens, one.session.request.slo) == (3.0, 9, SLO)
    assert len(one.session.request.prompt) == 7
    assert world.num_left == 0


def test_a_text_is_judged_by_when_its_reader_has_its_tokens():
    """Rounds of 10 ms and half a millisecond a token, 10 ms away: the first token comes after three ways."""
    (done,) = served([arrival(10.0, tokens=11, slo=SLO)]).drafts[0].done
    assert done.times.ttft_s >= 0.02
    assert done.times.tpot_s == pytest.approx(0.0105, rel=1e-6)
    assert done.times.kept().outcome == "attained"
    (done,) = served([arrival(10.0, tokens=11, slo=Objectives(tpot_s=0.0104))]).drafts[0].done
    assert done.times.kept().outcome == "slow"


@pytest.mark.parametrize("rate", [0.5, 3.0, 12.0])
def test_a_rescaled_trace_has_the_rate_and_keeps_its_bursts(rate):
    times = rescaled("azure_llm_2023_conv", rate, 60.0, 600.0)
    assert len(times) == round(60 * rate)
    assert times[0] == 0.0
    assert times[-1] < 60.0
    assert times == sorted(times)
    original = [at_s for at_s in recorded("azure_llm_2023_conv") if at_s >= 600.0][: len(times) + 1]
    stretch = 60.0 / (original[-1] - original[0])
    assert times[1] == pytest.approx(stretch * (original[1] - original[0]))


def test_uneven_texts_have_the_mean_and_claim_what_is_true():
    text = Uneven(0.7, 2.0, 5)
    probabilities = [text.probabilities(position, 0) for position in range(5000)]
    assert fmean(probabilities) == pytest.approx(0.7, abs=0.02)
    assert min(probabilities) < 0.05
    assert max(probabilities) > 0.99
    assert text.rate(17, 3, False) == text.probabilities(17, 0)
    even = [Uneven(0.7, 1000.0, 5).probabilities(position, 0) for position in range(500)]
    assert max(even) - min(even) < 0.15
