"""The draft node counts texts as their readers saw them."""

import pytest

from draft_node.core.counts import Counts
from draft_node.service.request_stats import RequestStats
from goodspeed.slo.objectives import OTHER


def test_a_text_from_its_wish_to_its_end():
    texts = RequestStats()
    text = texts.begin(7, now=10.0)
    text.delivered(1, now=10.5)
    text.delivered(4, now=10.6)
    text.delivered(3, now=11.2)
    text.finished("stop", now=11.25)
    text.left()
    assert (texts.num_prompt_tokens, texts.num_tokens, texts.num_abandoned) == (7, 8, 0)
    assert texts.finished == {"stop": 1}
    assert texts.first_token_s.total == pytest.approx(0.5)
    assert (texts.gap_s.num_values, texts.gap_s.total) == pytest.approx((2, 0.7))
    assert (texts.per_token_s.num_values, texts.per_token_s.total) == pytest.approx((1, 0.1))
    assert texts.whole_s.total == pytest.approx(1.25)
    assert (texts.prompt_tokens.total, texts.tokens.total) == (7, 8)


def test_a_text_without_tokens_says_nothing_of_its_first():
    texts = RequestStats()
    text = texts.begin(3, now=0.0)
    text.delivered(0, now=1.0)
    text.failed("prompt")
    text.left()
    assert texts.failed == {"prompt": 1}
    assert texts.first_token_s.num_values == texts.whole_s.num_values == texts.num_prompt_tokens == 0
    assert texts.num_abandoned == 0


def test_a_reader_who_leaves():
    texts = RequestStats()
    text = texts.begin(3, now=0.0)
    text.delivered(2, now=1.0)
    text.left()
    assert (texts.num_abandoned, texts.num_tokens) == (1, 2)
    assert texts.whole_s.num_values == 0


def test_reasons_from_the_network_are_bounded():
    counts, texts = Counts(), RequestStats()
    for code in ("prompt", "tomorrow's", "the day after's"):
        counts.refused(code)
        texts.begin(3, now=0.0).failed(code)
    assert counts.refusals == texts.failed == {"prompt": 1, OTHER: 2}
