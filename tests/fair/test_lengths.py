"""The remaining length of a text is expected from finished ones."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodspeed.fair.lengths import OutputLengths

PROMPT = 10


def learned(*lengths, **options):
    known = OutputLengths(**options)
    for length in lengths:
        known.observe(length, PROMPT)
    return known


def test_with_nothing_known_so_many_more_are_expected_whatever_has_come():
    known = OutputLengths(prior_tokens=100)
    assert known.remaining(0, PROMPT) == 100
    assert known.remaining(1000, PROMPT) == 100


def test_the_mean_of_longer_texts_with_the_prior_as_two_of_them_and_that_as_two_more():
    # longer than 50: 60 and 80, of prompts as long; the prior expects 150
    of_all = (60 + 80 + 2 * 150) / 4
    assert learned(10, 60, 80, prior_tokens=100).expected(50, PROMPT) == pytest.approx((60 + 80 + 2 * of_all) / 4)


def test_texts_with_as_long_a_prompt_count_most():
    known = OutputLengths(prior_tokens=100)
    for _ in range(50):
        known.observe(20, prompt_tokens=100)
        known.observe(400, prompt_tokens=1000)
    assert known.expected(0, 100) == pytest.approx(20, abs=10)
    assert known.expected(0, 1000) == pytest.approx(400, abs=10)
    assert known.expected(0, 10) == pytest.approx(210, abs=5)  # nobody like it: the mean of all
    assert known.expected(30, 100) > 385  # whoever goes on beyond 20 is like the long ones


def test_the_oldest_are_forgotten():
    known = learned(1000, 1000, 10, 10, prior_tokens=10, max_texts=2)
    assert known.expected(0, PROMPT) == 10
    assert known._lengths.tolist() == [10, 10]


def test_a_text_without_a_token_tells_nothing():
    assert learned(0, prior_tokens=10).expected(0, PROMPT) == 10


@given(st.lists(st.integers(1, 500), max_size=30), st.integers(0, 300), st.integers(1, 400) | st.just(inf))
def test_the_mean_is_that_of_every_longer_text_cut_at_what_it_may_be(lengths, so_far, max_tokens):
    counted = [min(length, max_tokens) for length in lengths[-20:] if length > so_far]
    mean = (sum(counted) + 2 * min(so_far + 50, max_tokens)) / (len(counted) + 2)
    alike = (sum(counted) + 2 * mean) / (len(counted) + 2)
    known = learned(*lengths, prior_tokens=50, max_texts=20)
    assert known.expected(so_far, PROMPT, max_tokens) == pytest.approx(max(so_far, alike))
