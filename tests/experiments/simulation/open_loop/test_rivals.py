"""The paper's baselines: rounds by hand."""

from dataclasses import replace

import pytest

from experiments.simulation.arrivals import Arrival
from experiments.simulation.open_loop.rivals import Kind, alone, parted
from experiments.simulation.texts.acceptance import Independent
from goodspeed.fair.round_time import Linear
from goodspeed.slo.objectives import Objectives

TEN_MS = Kind(lambda num_steps: Linear(fixed_s=0.01 + 0.002 * num_steps), 10_000, most_prompt_tokens=20)


def arrival(at_s, prompt=8, output=21, acceptance=0.5):
    return Arrival(at_s, prompt, output, Independent(acceptance), Objectives(5.0, 0.05))


def seconds(service):
    return [round(text.seconds, 9) for text in sorted(service.texts, key=lambda text: text.num_tokens)]


def test_vllm_stops_texts_for_prompts_and_sarathi_gives_prompts_what_texts_leave():
    """A prompt of 95 tokens beside a text: five rounds of 20 of prompts only, or five of 19 beside the text."""
    coming = [arrival(0.0, output=22), arrival(0.045, prompt=95, output=1)]
    assert seconds(alone(TEN_MS, coming)) == [0.055, 0.27]
    assert seconds(alone(replace(TEN_MS, decode_first=20), coming)) == [0.055, 0.22]


def test_devices_of_their_own_stall_no_text_and_take_prompts_in_turn():
    coming = [arrival(0.0), arrival(0.04, prompt=60, output=2), arrival(0.04, prompt=60, output=2)]
    one, two = parted(TEN_MS, 1, 1, coming), parted(TEN_MS, 2, 1, coming)
    assert [text.seconds for text in one.texts if text.num_tokens == 21] == [pytest.approx(0.21)]
    assert seconds(one)[:2] == [pytest.approx(0.04), pytest.approx(0.07)]
    assert seconds(two)[:2] == [pytest.approx(0.04)] * 2


def test_memory_is_reserved_or_the_latest_text_makes_room():
    """Four texts of 60 tokens, of which not even two fit at their ends."""
    coming = [arrival(0.001 * number, prompt=40, output=20) for number in range(4)]
    small = replace(TEN_MS, pool_tokens=96)
    reserved, preempted = alone(small, coming), alone(replace(small, reserves=False), coming)
    for done in (reserved, preempted):
        assert [text.num_tokens for text in done.texts] == [20] * 4
    assert (reserved.num_preempted, preempted.num_preempted > 0) == (0, True)
    assert seconds(reserved) == pytest.approx([0.21, 0.419, 0.628, 0.837]), "one after the other"
