"""A text's account: what it is owed, when it is behind, and what made it late. Times by hand."""

import pytest

from goodspeed.slo.objectives import Objectives
from goodspeed.wire.messages import Slo
from verify_node.slo.ledger import Ledger

CHAT = Objectives(ttft_s=0.5, tpot_s=0.05, tier="chat")


def opened(slo=CHAT, *, waited_s=0.0, since_first_s=None, num_tokens=0, round_trip_s=0.0, now=10.0, old=None):
    return Ledger.open(Slo(slo, waited_s, since_first_s), slo, num_tokens, round_trip_s, now, old)


def writing(now=10.0, **changes):
    """It got its first token at this time."""
    ledger = opened(now=now, **changes)
    ledger.decided(1, now)
    return ledger


def test_a_text_was_asked_for_before_its_message_came():
    assert opened(waited_s=0.3, round_trip_s=0.1).asked_at == pytest.approx(9.65)


def test_before_its_first_token_a_text_is_owed_one_and_behind_after_its_ttft():
    ledger = opened(waited_s=0.3)
    assert ledger.owed(10.1, 0.02) == 1.0
    assert not ledger.is_behind(10.1)
    assert ledger.is_behind(10.3)


def test_what_is_owed_follows_eq_3_of_adaserve():
    ledger = writing()
    ledger.decided(18, 10.9)
    assert ledger.owed(11.0, 0.02) == pytest.approx(2.42), "(1.0 + 1.05 x 0.02) / 0.05 - 18"
    assert ledger.owed(10.0, 0.02) == 1.0, "a round brings one token anyway"


def test_without_a_tpot_nothing_but_the_next_token_is_owed():
    assert writing(slo=Objectives(ttft_s=0.5)).owed(99.0, 0.02) == 1.0


def test_a_text_is_behind_when_it_has_had_less_than_a_token_per_tpot():
    ledger = writing()
    assert not ledger.is_behind(10.05)
    assert ledger.is_behind(10.051)
    ledger.decided(3, 10.06)
    assert not ledger.is_behind(10.2)


def test_a_text_that_is_opened_again_goes_on_with_its_account():
    ledger = opened(num_tokens=11, since_first_s=0.9, round_trip_s=0.1)
    assert ledger.first_at == pytest.approx(9.0), "the reader had it half a round trip later"
    assert ledger.owed(10.0, 0.0) == pytest.approx(1.0 / 0.05 - 10)


def test_a_text_in_time_has_no_cause_of_being_late():
    ledger = opened()
    ledger.turn_to("prefill", 10.1)
    ledger.turn_to("queue", 10.2)
    ledger.decided(1, 10.2)
    ledger.decided(10, 10.7)
    assert ledger.violation(0.0) is None


@pytest.mark.parametrize(
    ("waits", "cause"),
    [
        ([("queue", 0.5), ("prefill", 0.2)], "queue"),
        ([("queue", 0.2), ("prefill", 0.5)], "prefill"),
        ([("memory", 0.6), ("prefill", 0.2)], "memory"),
    ],
)
def test_a_late_first_token_is_put_down_to_what_took_longest_before_it(waits, cause):
    ledger, now = opened(), 10.0
    for what, seconds in waits:
        ledger.turn_to(what, now)
        now += seconds
    ledger.turn_to("queue", now)
    ledger.decided(1, now)
    assert ledger.violation(0.0) == cause


@pytest.mark.parametrize(
    ("what", "seconds"), [("round", 0.9), ("draft", 0.9), ("network", 0.8), ("memory", 0.7), ("queue", 2.0)]
)
def test_a_slow_text_is_put_down_to_what_took_longest_after_its_first_token(what, seconds):
    ledger = writing()
    ledger.turn_to(what, 10.1)
    ledger.turn_to("queue", 10.1 + seconds)
    ledger.decided(2, 10.2 + seconds)
    assert ledger.violation(0.0) == what


def test_a_first_token_is_late_by_its_way_to_the_reader_too():
    ledger = opened(waited_s=0.35, round_trip_s=0.2)
    ledger.decided(1, 10.0)
    assert ledger.violation(0.2) == "queue", "0.35 s there, 0.1 up and 0.1 down: more than 0.5"
    assert ledger.violation(0.0) is None


def test_absence_is_told_from_the_old_account_or_from_how_late_the_text_is():
    old = writing()
    again = opened(num_tokens=1, since_first_s=2.0, now=12.0, old=old)
    assert again.after_first["away"] == pytest.approx(2.0)
    fresh = opened(num_tokens=11, since_first_s=2.0, now=12.0)
    assert fresh.after_first["away"] == pytest.approx(1.5), "2 s, of which 10 tokens at 50 ms were due"
    fresh.decided(1, 12.0)
    assert fresh.violation(0.0) == "away"


def test_time_is_accounted_for_once_also_after_a_restart():
    ledger = opened(waited_s=20.0, since_first_s=19.0, num_tokens=11, now=30.0)
    assert ledger.before_first["queue"] == pytest.approx(1.0)
    assert ledger.violation(0.0) == "away"


def test_who_is_late_and_slow_is_judged_by_both_accounts_together():
    ledger = opened()
    ledger.turn_to("prefill", 10.4)
    ledger.turn_to("queue", 10.9)
    ledger.decided(1, 10.9)
    ledger.turn_to("round", 11.3)
    ledger.decided(1, 11.4)
    assert ledger.violation(0.0) == "queue", "0.4 and 0.4 s, and 0.5 s of prefill"


def test_a_text_opened_again_changes_nothing_of_the_account_before():
    old = writing()
    again = opened(num_tokens=1, since_first_s=1.0, now=11.0, old=old)
    again.turn_to("round", 11.5)
    assert old.after_first == {}
