"""When an acceptance rate counts as stable."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodspeed.errors import ConfigError
from verify_node.scheduler.laps import RateHistory, stable_rate


def history(*drafts, num_kept=8, window=64):
    rates = RateHistory(num_kept, window)
    for accepted, drafted in drafts:
        rates.observe(accepted, drafted)
    return rates


def test_a_rate_is_that_of_all_drafts_so_far():
    assert history((1, 2), (2, 2), (0, 4)).rates == (0.5, 0.75, 0.375)


def test_a_round_without_a_draft_tells_nothing():
    assert history((1, 2), (0, 0)).rates == (0.5,)
    assert history((1, 2), (0, 0)).num_drafted == 2.0


def test_only_the_last_drafts_count():
    assert history((4, 4), (0, 4), (0, 4), window=2).rates == (1.0, 0.5, 0.0)


@pytest.mark.parametrize(
    ("rates", "found"),
    [
        ((0.5, 0.6), None),
        ((0.5, 0.6, 0.55), pytest.approx(0.55)),
        ((0.9, 0.5, 0.6, 0.55), pytest.approx(0.55)),
        ((0.5, 0.6, 0.61), None),
    ],
)
def test_stable_is_what_changed_by_less_than_the_tolerance_over_so_many_rounds(rates, found):
    assert stable_rate(rates, 3, 0.101) == found


def test_a_text_that_turns_to_something_else_is_stable_no_more():
    rates = history(*[(4, 4)] * 20)
    assert stable_rate(rates.rates, 8, 0.1) == 1.0
    for _ in range(8):
        rates.observe(0, 4)
    assert stable_rate(rates.rates, 8, 0.1) is None


@pytest.mark.parametrize("wrong", [(0, 8), (8, 0)])
def test_no_history_is_refused(wrong):
    with pytest.raises(ConfigError, match="both must be 1 or more"):
        RateHistory(*wrong)


@given(st.lists(st.integers(0, 8).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), max_size=40))
def test_rates_are_those_of_the_window_whatever_was_before(drafts):
    rates = history(*drafts, num_kept=5, window=7)
    told = [draft for draft in drafts if draft[1]][-7:]
    assert len(rates.rates) <= 5
    if told:
        assert rates.rates[-1] == pytest.approx(sum(a for a, _ in told) / sum(n for _, n in told))
