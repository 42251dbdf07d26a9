"""So many requests can be promised: by hand on a GPU with simple rounds, and when they come at random."""

from dataclasses import replace

import pytest

from experiments.capacity import Gpu
from experiments.slo.promise_capacity import Node, Plan, Tier, most_decoding, promised_share, steady
from goodspeed.fair.round_time import Linear

GPU = Gpu("4 ms and 1 ms a token", Linear(fixed_s=0.004, token_s=0.001))
TIER = Tier(ttft_s=1.0, tpot_s=0.02001, prompt_tokens=90, output_tokens=11)
"""Of the 16 tokens of its rounds 12 may be promised: 600 tokens a second, less a hair."""

ALONE = Plan(GPU, ((TIER, 1.0),))


def test_time_is_used_up_by_prompts_and_texts():
    """A request takes 90 tokens of prompt, with the first of its text, and 10 more."""
    found = steady(ALONE)
    assert found.requests_per_s == pytest.approx(12 / 0.02001 / 100)
    assert found.num_decoding == pytest.approx(found.requests_per_s * 10 * 0.02001)
    assert found.limit == "time"


def test_as_many_decode_for_ever_as_a_round_has_tokens():
    assert most_decoding(GPU, TIER) == 12
    assert most_decoding(GPU, TIER, longer=20.01 / 12.01) == 6
    assert most_decoding(replace(GPU, cached_tokens=404.0), TIER) == 3


def test_memory_is_reserved_from_the_beginning_to_the_end():
    """Each request holds 101 tokens for 1.2 s, of 202 that may be promised."""
    found = steady(replace(ALONE, gpu=replace(GPU, cached_tokens=202.0 / 0.75)))
    assert found.requests_per_s == pytest.approx(2 / 1.2001)
    assert found.limit == "memory"


def test_the_tightest_tpot_of_a_mix_makes_rounds_short():
    patient = replace(TIER, tpot_s=0.1)
    mixed = steady(Plan(GPU, ((TIER, 0.5), (patient, 0.5))))
    assert mixed.requests_per_s == pytest.approx(steady(ALONE).requests_per_s)
    assert steady(Plan(GPU, ((patient, 1.0),))).requests_per_s == pytest.approx(72 / 0.1 / 100)


def test_what_can_never_be_is_none():
    assert steady(Plan(GPU, ((replace(TIER, tpot_s=0.004), 1.0),))).requests_per_s == 0.0


def test_a_node_promises_as_long_as_it_can_be_kept():
    """Until the first deadline nobody decodes: a round of 0.98 s carries 975 tokens, of which 731 are 8 prompts."""
    node = Node(ALONE)
    assert [node.decide(TIER, 0.0) for _ in range(12)] == [True] * 8 + [False] * 4
    assert [node.decide(TIER, 0.5) for _ in range(2)] == [True, False], "200 tokens a second beside 8 who decode"
    assert node.decide(TIER, 2.0)
    assert len(node.promises) == 1


def test_memory_is_given_back_at_the_end():
    node = Node(replace(ALONE, gpu=replace(GPU, cached_tokens=135.0)))
    assert [node.decide(TIER, at_s) for at_s in (0.0, 1.1, 1.3)] == [True, False, True]


@pytest.mark.parametrize(("load", "least", "most"), [(0.5, 0.99, 1.0), (2.0, 0.45, 0.6)])
def test_what_was_computed_can_be_promised_at_random_moments(load, least, most):
    assert least <= promised_share(ALONE, load * steady(ALONE).requests_per_s, 60.0) <= most
