"""Senders are limited and barred: the buckets by hand, then laws for honest draft nodes and for any names."""

import pytest

from goodspeed.wire.fields import BURST_S
from verify_node.core import rate_limit
from verify_node.core.rate_limit import BAR_S, MAX_BAR_S, OFFENCES, RateLimiter, Treatment

WHO = b"a"
SESSIONS = 64


@pytest.fixture
def conduct():
    return RateLimiter(SESSIONS)


def offend(conduct, num_times, now=0.0, code="malformed"):
    """Returns how each of so many refusals is treated."""
    found = []
    for _ in range(num_times):
        assert not conduct.heard(WHO, now)
        found.append(conduct.refused(WHO, code, now))
    return found


def test_offences_are_forgotten_by_and_by(conduct):
    offend(conduct, 60)
    assert offend(conduct, 1, now=30.0) == [Treatment.COUNTED]
    assert offend(conduct, 1, now=45.0) == [Treatment.ANSWERED]
    assert all(one is Treatment.ANSWERED for second in range(1000) for one in offend(conduct, 1, now=100.0 + second))


@pytest.mark.parametrize("code", ["stale_epoch", "unknown_session", "hello_first", "wrong_base", "too_many_sessions"])
def test_what_a_bad_line_brings_about_is_no_offence(conduct, code):
    assert code not in OFFENCES
    assert set(offend(conduct, 2000, code=code)) == {Treatment.ANSWERED}


def test_long_texts_count_as_more_messages(conduct):
    num_heard = 0
    while not conduct.heard(WHO, 0.0, num_tokens=1 << 20):
        num_heard += 1
    assert num_heard == 19


def test_verdicts_earn_the_answers_to_them(conduct):
    """Rounds of a millisecond, three messages to each verdict, for 64 sessions: nothing of that is a flood."""
    for number in range(1000):
        for _ in range(3 * SESSIONS):
            assert not conduct.heard(WHO, number / 1000)
        for _ in range(SESSIONS):
            conduct.earned(WHO)
    assert conduct.refused(WHO, "stale_epoch", 1.0) is Treatment.ANSWERED


def test_repeated_verdicts_are_limited_and_bar_nobody(conduct):
    burst = 16 * int(conduct.max_messages)
    conduct.heard(WHO, 0.0)
    assert [conduct.repeats(WHO, 10**9) for _ in range(3)] == [True, True, False]
    assert not conduct.repeats(WHO, 16)
    assert not conduct.heard(WHO, BURST_S / 4)
    assert [conduct.repeats(WHO, burst // 4), conduct.repeats(WHO, 16)] == [True, False], "a quarter has drained"
    assert conduct.refused(WHO, "stale_epoch", BURST_S / 4) is Treatment.ANSWERED


def test_all_sessions_of_an_honest_client_repeat_themselves_on_a_dead_line(conduct):
    """Two messages a session after 1, 2, 4 and then every 8 s; half of a minute's arrive at once; opened anew."""
    silences, at = [1, 2, 4, *[8] * 30], 0.0
    for silence in silences:
        at += silence
        arrival = at if at > 60 else 60.0  # what the line held back
        for _ in range(2 * SESSIONS):
            assert not conduct.heard(WHO, arrival)
            assert conduct.refused(WHO, "unknown_session", arrival) is Treatment.ANSWERED
    for _ in range(SESSIONS):
        assert not conduct.heard(WHO, at, num_tokens=32_000)


def test_a_bar_ends_and_the_next_is_twice_as_long(conduct):
    now, lengths = 0.0, []
    for _ in range(7):
        lengths.append(conduct.bar(WHO, now))
        conduct.expire(now + lengths[-1] - 0.01)
        assert WHO in conduct.barred
        now += lengths[-1]
        conduct.expire(now)
        assert WHO not in conduct.barred
        assert offend(conduct, 1, now) == [Treatment.ANSWERED]
    assert lengths == [BAR_S, 60, 120, 240, 480, MAX_BAR_S, MAX_BAR_S]
    assert conduct.bar(WHO, now + MAX_BAR_S) == BAR_S, "it behaved for as long as the longest bar"


def test_memory_is_bounded_whatever_names_come(conduct, monkeypatch):
    monkeypatch.setattr(rate_limit, "MAX_SENDERS", 64)
    for number in range(3 * 64):
        name = number.to_bytes(4, "big")
        conduct.heard(name, 0.0)
        conduct.refused(name, "malformed", 0.0)
        conduct.bar(name, float(number))
    assert len(conduct.barred) == len(conduct._records) == 64
    assert (3 * 64 - 1).to_bytes(4, "big") in conduct.barred
