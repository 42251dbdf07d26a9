"""A session's deadline: what is due and owed, when it is behind, and what made it late. Times by hand."""

from math import inf, isfinite

import pytest

from goodspeed.slo.capacity import FIRST_TOKEN_S
from goodspeed.slo.objectives import Objectives
from goodspeed.wire.messages import Slo
from tests.verify_node.slo.deadlines import deadline as by_hand
from tests.verify_node.slo.deadlines import running
from verify_node.session.deadline import Deadline

CHAT = Objectives(ttft_s=0.5, tpot_s=0.05, tier="chat")
BY_MEAN = Objectives(ttft_s=0.5, tpot_s=0.05, tpot_window=0)


def opened(slo=CHAT, *, waited_s=0.0, since_first_s=None, num_tokens=0, round_trip_s=0.0, now=10.0, old=None):
    return Deadline.open(b"one", "ana", Slo(slo, waited_s, since_first_s), slo, num_tokens, round_trip_s, now, old)


def writing(now=10.0, **changes):
    """It got its first token at this time."""
    deadline = opened(now=now, **changes)
    deadline.delivered(1, now)
    return deadline


def test_before_its_first_token_a_text_is_owed_one_and_behind_after_its_ttft():
    deadline = opened(waited_s=0.3)
    assert deadline.owed(10.1, 0.02) == 1.0
    assert not deadline.is_behind(10.1)
    assert deadline.is_behind(10.3)


def test_what_is_owed_follows_eq_3_of_adaserve():
    deadline = writing(slo=BY_MEAN)
    deadline.delivered(18, 10.9)
    assert deadline.owed(11.0, 0.02) == pytest.approx(2.42), "(1.0 + 1.05 x 0.02) / 0.05 - 18"
    assert deadline.owed(10.0, 0.02) == 1.0, "a round brings one token anyway"
    assert writing().owed(10.0, 0.02) == 1.0, "a round of 21 ms brings one token: that is enough"


def test_a_round_that_brings_one_token_may_take_until_the_text_has_had_less_than_a_token_per_tpot():
    deadline = writing()
    assert not deadline.is_behind(10.05)
    assert deadline.is_behind(10.051)
    deadline.delivered(1, 10.05)
    assert deadline.left_s(10.08) == pytest.approx(0.02)
    deadline.delivered(2, 10.06)
    assert not deadline.is_behind(10.2)
    assert opened().left_s(99.0) == writing(slo=Objectives(ttft_s=0.5)).left_s(99.0) == inf


def test_a_text_that_is_opened_again_goes_on_with_its_account():
    deadline = opened(slo=BY_MEAN, num_tokens=11, since_first_s=0.9, round_trip_s=0.1)
    assert deadline.first_at == pytest.approx(9.0), "the reader had it half a round trip later"
    assert deadline.owed(10.0, 0.0) == pytest.approx(1.0 / 0.05 - 10)
    assert opened(num_tokens=16, since_first_s=0.9).late_by(10.0) == pytest.approx(0.0), "its window began unseen"


def test_tokens_that_came_early_in_one_window_are_no_reserve_in_the_next():
    """TPOT 50 ms: after ten tokens at once the mean allows for half a second, the next window for 50 ms."""
    by_tens, by_mean = writing(), writing(slo=BY_MEAN)
    for one in (by_tens, by_mean):
        one.set_prompt(1)
        one.delivered(10, 10.01)
    assert (by_tens.due, by_mean.due) == (pytest.approx(10.06), pytest.approx(10.55))
    assert (by_tens.left_s(10.01), by_mean.left_s(10.01)) == (pytest.approx(0.05), pytest.approx(0.54))
    by_tens.delivered(3, 10.02)
    assert by_tens.due == pytest.approx(10.01 + 4 * 0.05)
    by_tens.pause(10.1)
    by_tens.resume(10.3)
    assert by_tens.due == pytest.approx(10.21 + 4 * 0.05)


def test_a_window_that_was_late_is_over_when_the_next_one_begins():
    deadline = writing()
    deadline.delivered(9, 12.0)
    assert deadline.owed(12.0, 0.0) == pytest.approx(2.0 / 0.05 - 9)
    deadline.delivered(1, 12.1)
    assert deadline.owed(12.1, 0.0) == 1.0
    assert deadline.is_slow


@pytest.mark.parametrize(
    ("waits_for", "wait_s", "prefill_s", "cause"),
    [
        ("queue", 0.5, 0.2, "queue"), ("queue", 0.2, 0.5, "prefill"),
        ("memory", 0.6, 0.2, "memory"), ("queue", 0.1, 0.1, None),
    ],
)  # fmt: skip
def test_a_late_first_token_is_put_down_to_what_took_longest_before_it(waits_for, wait_s, prefill_s, cause):
    deadline, now = opened(), 10.0 + wait_s + prefill_s
    deadline.turn_to(waits_for, 10.0)
    deadline.turn_to("prefill", 10.0 + wait_s)
    deadline.turn_to("queue", now)
    deadline.delivered(1, now)
    deadline.delivered(10, now + 0.5)
    assert deadline.violation(0.0) == cause


@pytest.mark.parametrize(
    ("what", "seconds"), [("round", 0.9), ("draft", 0.9), ("network", 0.8), ("memory", 0.7), ("queue", 2.0)]
)
def test_a_slow_text_is_put_down_to_what_took_longest_after_its_first_token(what, seconds):
    deadline = writing()
    deadline.turn_to(what, 10.1)
    deadline.turn_to("queue", 10.1 + seconds)
    deadline.delivered(2, 10.2 + seconds)
    assert deadline.violation(0.0) == what


def test_a_first_token_is_late_by_its_way_to_the_reader_too():
    deadline = opened(waited_s=0.35, round_trip_s=0.2)
    deadline.delivered(1, 10.0)
    assert deadline.violation(0.2) == "queue", "0.35 s there, 0.1 up and 0.1 down: more than 0.5"
    assert deadline.violation(0.0) is None


def test_absence_is_told_from_the_old_account_or_from_how_late_the_text_is_and_counts_once():
    again = opened(num_tokens=1, since_first_s=2.0, now=12.0, old=writing())
    assert again.after_first["away"] == pytest.approx(2.0)
    fresh = opened(num_tokens=11, since_first_s=2.0, now=12.0)
    assert fresh.after_first["away"] == pytest.approx(1.5), "2 s, of which 10 tokens at 50 ms were due"
    fresh.delivered(1, 12.0)
    assert fresh.violation(0.0) == "away"
    restarted = opened(waited_s=20.0, since_first_s=19.0, num_tokens=11, now=30.0)
    assert restarted.before_first["queue"] == pytest.approx(1.0)
    assert restarted.violation(0.0) == "away"


def test_who_is_late_and_slow_is_judged_by_both_accounts_together():
    deadline = opened()
    deadline.turn_to("prefill", 10.4)
    deadline.turn_to("queue", 10.9)
    deadline.delivered(1, 10.9)
    deadline.turn_to("round", 11.3)
    deadline.delivered(1, 11.4)
    assert deadline.violation(0.0) == "queue", "0.4 and 0.4 s, and 0.5 s of prefill"


# -- what a promise asks for -------------------------------------------------------------------------------------------


def test_the_first_token_is_due_by_the_ttft_half_a_round_trip_earlier_and_others_from_then_on():
    """From the first token on, or from its deadline if that was late; without a TTFT in some seconds."""
    one = by_hand(b"a", 10.0, 5, 0.5)
    assert (one.due, one.is_decoding) == (10.0, False)
    one.delivered(1, 9.0)
    one.set_prompt(1)
    assert (one.due, one.is_decoding) == (9.5, True)
    one.delivered(3, 9.1)
    assert one.due == 11.0
    assert running(b"a", 12.0, tpot_s=0.5, due=10.0).due == 10.5
    assert running(b"a", 9.0, tpot_s=None, due=10.0).due == inf
    assert opened(waited_s=0.1, round_trip_s=0.1).due == pytest.approx(10.0 - 0.15 + 0.5 - 0.05)
    assert opened(slo=Objectives(tpot_s=0.05)).due == 10.0 + FIRST_TOKEN_S
    assert opened(num_tokens=5, since_first_s=0.9).due == 10.0 + FIRST_TOKEN_S, "it goes on here"


def test_while_it_is_paused_its_time_stands_still():
    one = running(b"a", 9.0, tpot_s=0.5)
    one.pause(9.2)
    one.pause(9.3)
    one.resume(11.2)
    one.resume(12.0)
    assert one.due == 11.5


def test_a_text_opened_again_keeps_its_promise_and_delivers_again_what_is_lost():
    old = running(b"a", 9.0, number=5, tpot_s=0.5)
    again = opened(slo=Objectives(tpot_s=0.5), num_tokens=3, since_first_s=1.0)
    again.continue_promise(old)
    assert again.due == 9.0 + 3 * 0.5
    again.set_prompt(7)
    again.pages = 2
    assert (again.prompt_left, again.pages) == (7, 2)


def test_a_text_without_a_rate_that_is_read_again_has_some_time():
    """It has had its first token, so nothing of it is due; its draft node came back, and its memory was gone."""
    one = running(b"a", 1.0, number=3, tpot_s=None, due=2.0)
    one.set_prompt(9)
    assert not isfinite(one.due)
    assert 0.0 < one.request(1.5, 0.1).deadline_s <= FIRST_TOKEN_S
