"""Drafts from afar: the shortest one that keeps a TPOT, the best round, and promises that hang on nobody."""

import random
from math import inf

import pytest

from goodspeed.admission.remote import Remote, plan, shortest
from goodspeed.errors import ConfigError


def remote(alpha=0.8, tpot_s=0.05, trip_s=0.0, draft_s=0.0):
    """A session whose cycle is the round, its round trip, and the time of its drafting."""
    return Remote(alpha, tpot_s, lambda drafted, round_s: round_s + trip_s + draft_s * drafted)


def rounds(seconds):
    """20 ms and then 10 tokens a millisecond."""
    return max(0, int(10_000 * (seconds - 0.02) + 1e-9))


def test_nothing_is_drafted_while_the_round_is_no_longer_than_the_tpot():
    assert shortest(remote(trip_s=9.0), 0.05) == 0
    assert shortest(remote(trip_s=9.0), 0.02) == 0


def test_the_shortest_draft_by_hand():
    """Alpha 0.8: drafts of 1, 2 and 3 bring 1.8, 2.44 and 2.95 tokens, so that 90, 122 and 148 ms are kept."""
    assert shortest(remote(), 0.09) == 1
    assert shortest(remote(), 0.091) == 2
    assert shortest(remote(trip_s=0.04), 0.09) == 3
    assert shortest(remote(trip_s=0.04, draft_s=0.01), 0.09) == 5, "0.184 s are kept, and 0.18 needed"


def test_a_draft_that_is_never_long_enough_is_none():
    assert shortest(remote(), 0.26) is None, "mu is below 5 however long the draft is"
    assert shortest(remote(alpha=0.0), 0.051) is None
    assert shortest(remote(trip_s=inf), 0.09) is None, "its draft node is gone"
    assert shortest(remote(trip_s=0.04), 0.09, most=2) is None


def test_of_all_shorter_drafts_none_is_enough():
    rng = random.Random(0)
    for _ in range(500):
        session = remote(rng.uniform(0.1, 1.0), 0.05, rng.uniform(0.0, 0.1), rng.uniform(0.0, 0.02))
        round_s = rng.uniform(0.01, 0.2)
        found = shortest(session, round_s, 20)
        enough = [
            number
            for number in range(1, 21)
            if sum(session.alpha**k for k in range(number + 1)) * 0.05 >= session.cycle_s(number, round_s)
        ]
        assert found == (0 if round_s <= 0.05 else min(enough, default=None))


def test_the_plan_by_hand():
    """A round of 90 ms has 700 tokens, less two for each session, and one of 50 ms has 300, less one for each."""
    found = plan([remote()] * 10, rounds, most=1, num_times=2)
    assert found.round_s == pytest.approx(0.09)
    assert found.drafted == (1,) * 10
    assert found.prefill_rate == pytest.approx((700 - 20) / 0.09)


def test_longer_rounds_do_not_pay_where_drafts_cost_more_than_they_carry():
    slow = [remote(draft_s=0.03, trip_s=0.04)] * 10
    found = plan(slow, lambda seconds: 1000 * seconds)
    assert found.drafted == (0,) * 10
    assert found.round_s == 0.05


def brute(sessions, tokens_in, times, most):
    """The best rate at any of these times, over all lengths of all sessions; lengths do not depend on each other."""
    best = -inf
    for round_s in times:
        rate = tokens_in(round_s) / round_s
        for one in sessions:
            takes = [
                (1 + number) / (round_s if not number else one.cycle_s(number, round_s))
                for number in range(most + 1)
                if sum(one.alpha**k for k in range(number + 1)) * one.tpot_s
                >= (round_s if not number else one.cycle_s(number, round_s)) * (1 - 1e-9)
            ]
            rate -= min(takes, default=inf)
        best = max(best, rate)
    return best


def test_no_other_lengths_at_these_times_bring_more_where_cycles_do_not_grow_with_drafts():
    rng = random.Random(1)
    for _ in range(200):
        sessions = [remote(rng.uniform(0.3, 0.95), rng.choice([0.05, 0.1]), rng.choice([0.0, 0.02])) for _ in range(6)]
        found = plan(sessions, rounds, most=8)
        assert found.prefill_rate == pytest.approx(brute(sessions, rounds, [found.round_s], 8))
        first_s = min(one.tpot_s for one in sessions)
        times = [first_s * 1.02**step for step in range(100)]
        assert found.prefill_rate >= 0.97 * brute(sessions, rounds, times, 8), "32 times are nearly as good as 100"


def test_a_promise_does_not_hang_on_a_draft_node():
    """Rounds of 50 ms carry 300 tokens, and 350 sessions decode: only drafts make that possible."""
    sessions = [remote(alpha=0.9)] * 350
    assert plan(sessions, rounds, guarantee="speculative").prefill_rate > 0
    assert plan(sessions, rounds) is None
    assert plan(sessions[:300], rounds) is not None


def test_a_draft_node_that_is_gone_is_planned_without_drafts():
    gone = remote(trip_s=inf)
    found = plan([remote(), gone], rounds)
    assert found.round_s == 0.05
    assert found.drafted == (0, 0)
    tight = [remote(tpot_s=0.01), remote(tpot_s=0.01)]
    assert plan(tight, rounds, guarantee="speculative").drafted == (13, 13)
    assert plan([*tight, remote(tpot_s=0.01, trip_s=inf)], rounds, guarantee="speculative") is None


def test_without_sessions_there_is_nothing_to_plan():
    assert plan([], rounds) is None


@pytest.mark.parametrize("wrong", [{"alpha": 1.1}, {"alpha": float("nan")}, {"tpot_s": 0.0}, {"tpot_s": inf}])
def test_an_impossible_session_is_refused(wrong):
    with pytest.raises(ConfigError, match="session 1 has"):
        plan([remote(), remote(**wrong)], rounds)
    with pytest.raises(ConfigError, match="num_times is 0"):
        plan([remote()], rounds, num_times=0)
