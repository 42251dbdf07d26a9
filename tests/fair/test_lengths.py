"""The remaining length of a text is expected from finished ones."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodspeed.fair.lengths import MAX_TEXTS, PRIOR_TOKENS, OutputLengths

PROMPT = 10


def learned(*lengths):
    known = OutputLengths()
    for length in lengths:
        known.observe(length, PROMPT)
    return known


def test_with_nothing_known_so_many_more_are_expected_whatever_has_come():
    """A text without a token tells nothing."""
    known = OutputLengths()
    assert known.remaining(0, PROMPT) == known.remaining(1000, PROMPT) == PRIOR_TOKENS
    assert learned(0).remaining(0, PROMPT) == PRIOR_TOKENS


def test_the_mean_of_longer_texts_with_the_prior_as_two_of_them_and_that_as_two_more():
    # longer than 50: 60 and 80, of prompts as long; the prior expects 178
    of_all = (60 + 80 + 2 * 178) / 4
    assert learned(10, 60, 80).remaining(50, PROMPT) == pytest.approx((60 + 80 + 2 * of_all) / 4 - 50)


def test_texts_with_as_long_a_prompt_count_most():
    known = OutputLengths()
    for _ in range(50):
        known.observe(20, prompt_tokens=100)
        known.observe(400, prompt_tokens=1000)
    assert known.remaining(0, 100) == pytest.approx(20, abs=10)
    assert known.remaining(0, 1000) == pytest.approx(400, abs=10)
    assert known.remaining(0, 10) == pytest.approx(210, abs=5)  # nobody like it: the mean of all
    assert known.remaining(30, 100) > 355  # whoever goes on beyond 20 is like the long ones


def test_the_oldest_are_forgotten():
    known = learned(*[1000] * MAX_TEXTS, *[10] * MAX_TEXTS)
    assert known._lengths.tolist() == [10] * MAX_TEXTS


@given(st.lists(st.integers(1, 500), max_size=30), st.integers(0, 300), st.integers(1, 400) | st.just(inf))
def test_the_mean_is_that_of_every_longer_text_cut_at_what_it_may_be(lengths, so_far, max_tokens):
    counted = [min(length, max_tokens) for length in lengths if length > so_far]
    mean = (sum(counted) + 2 * min(so_far + PRIOR_TOKENS, max_tokens)) / (len(counted) + 2)
    alike = (sum(counted) + 2 * mean) / (len(counted) + 2)
    assert learned(*lengths).remaining(so_far, PROMPT, max_tokens) == pytest.approx(max(0, alike - so_far))
