"""A text is in time or late by its reader's clock."""

import random

import pytest

from goodspeed.slo.attainment import NO_OBJECTIVES, Times
from goodspeed.slo.objectives import Objectives


def written(*deliveries, asked_at=10.0, slo=NO_OBJECTIVES):
    times = Times(asked_at, slo)
    for num_tokens, at in deliveries:
        times.delivered(num_tokens, at)
    return times


def test_times_are_those_of_the_reader_and_there_are_none_before_there_are_tokens():
    times = written((1, 10.5), (3, 10.6), (0, 10.9), (2, 11.0))
    assert (times.ttft_s, times.tpot_s, times.num_tokens) == (0.5, 0.1, 6)
    assert (written().ttft_s, written().tpot_s) == (None, None)
    assert written((1, 10.5)).tpot_s is None
    assert written((3, 10.5)).tpot_s == 0.0, "all of them came at once"


def test_both_objectives_have_to_be_kept_where_no_token_keeps_none_and_one_token_any_tpot():
    def outcome(*slo):
        return written((1, 10.5), (5, 11.0), slo=Objectives(*slo)).kept().outcome

    assert outcome(0.5, 0.1) == "attained"
    assert outcome(0.4, 0.1) == "late"
    assert outcome(0.4, 0.09) == "late", "what comes first counts"
    assert outcome(0.5, 0.09) == "slow"
    assert outcome() == "attained"
    assert written(slo=Objectives(ttft_s=1.0)).kept().outcome == "late"
    assert written(slo=Objectives(tpot_s=1.0)).kept().outcome == "late"
    assert written((1, 10.5), slo=Objectives(1.0, 0.001)).kept().outcome == "attained"


def test_a_pause_that_the_mean_hides_is_seen_in_its_window():
    """Three windows of two tokens, in 0.2, 0.6 and 0.1 s; the mean is 0.15 s a token."""
    deliveries = (1, 11.0), (2, 11.2), (1, 11.7), (1, 11.8), (2, 11.9)
    by_twos, by_mean = (written(*deliveries, slo=Objectives(2.0, 0.2, "", window)) for window in (2, 0))
    assert (by_twos.kept().outcome, by_mean.kept().outcome) == ("slow", "attained")
    assert by_twos.slowest_tpot_s == pytest.approx(0.3)
    assert by_twos.tpot_s == by_mean.tpot_s == by_mean.slowest_tpot_s == pytest.approx(0.15)


def test_thinking_has_a_tpot_of_its_own_also_where_the_answer_begins_in_a_window():
    """By twos: the second window has one token of each, and so 0.3 s."""
    for seconds, outcome in ((0.3, "attained"), (0.31, "slow")):
        times = Times(10.0, Objectives(2.0, 0.2, "", 2, 0.1))
        times.delivered(3, 10.2, 3)
        times.delivered(2, 10.2 + seconds, 1)
        times.delivered(2, 10.6 + seconds)
        assert times.kept().outcome == outcome
    too_slow = Times(10.0, Objectives(2.0, 0.2, "", 2, 0.1))
    for at in (10.0, 10.11, 10.22):
        too_slow.delivered(1, at, 1)
    assert too_slow.is_slow


@pytest.mark.parametrize("window", [1, 3, 10])
def test_the_slowest_window_is_that_of_all_times_laid_out(window):
    for seed in range(300):
        rng, at, deliveries = random.Random(seed), 10.0, []
        for _ in range(rng.randint(1, 12)):
            at += rng.random()
            deliveries.append((rng.randint(1, 7), at))
        times = [at for number, at in deliveries for _ in range(number)]
        ends = [*range(0, len(times), window)]
        if len(ends) > 1:
            groups = [(times[end] - times[end - window]) / window for end in ends[1:]]
            groups.append((times[-1] - times[ends[-2]]) / (len(times) - 1 - ends[-2]))
        else:
            groups = [(times[-1] - times[0]) / max(1, len(times) - 1)]
        found = written(*deliveries, slo=Objectives(tpot_window=window)).slowest_tpot_s
        assert (found or 0.0) == pytest.approx(max(groups))
