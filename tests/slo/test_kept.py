"""Whether a text was in time, by its reader's clock."""

from goodspeed.slo.kept import Times
from goodspeed.slo.objectives import Objectives


def written(*deliveries, asked_at=10.0):
    times = Times(asked_at)
    for num_tokens, at in deliveries:
        times.delivered(num_tokens, at)
    return times


def test_times_are_those_of_the_reader():
    times = written((1, 10.5), (3, 10.6), (0, 10.9), (2, 11.0))
    assert (times.ttft_s, times.tpot_s, times.num_tokens) == (0.5, 0.1, 6)


def test_before_there_are_tokens_there_are_no_times():
    assert (written().ttft_s, written().tpot_s) == (None, None)
    assert written((1, 10.5)).tpot_s is None
    assert written((3, 10.5)).tpot_s == 0.0, "all of them came at once"


def test_both_objectives_have_to_be_kept():
    times = written((1, 10.5), (5, 11.0))
    assert times.kept(Objectives(0.5, 0.1)).outcome == "attained"
    assert times.kept(Objectives(0.4, 0.1)).outcome == "late"
    assert times.kept(Objectives(0.4, 0.09)).outcome == "late", "what comes first counts"
    assert times.kept(Objectives(0.5, 0.09)).outcome == "slow"
    assert times.kept(Objectives()).outcome == "attained"


def test_a_text_without_tokens_kept_nothing_and_one_of_one_token_any_tpot():
    assert written().kept(Objectives(ttft_s=1.0)).outcome == "late"
    assert written().kept(Objectives(tpot_s=1.0)).outcome == "late"
    assert written((1, 10.5)).kept(Objectives(1.0, 0.001)).outcome == "attained"
