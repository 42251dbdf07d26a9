"""Every set that is accepted plays slot by slot without a miss; Fig. 3 of SLOs-Serve, in both readings.

In the first reading prompts are read as soon as there is room, and a request that is ready early decodes from its
deadline on. In the second its last prompt token is held, so that its first token comes when decoding can begin.
"""

import random

import pytest

from goodspeed.admission import Ask, admit
from tests.slo.replay import replay

DECODES, REQUESTS = [1.0] * 3, [Ask(6.0, 6, 1.0)] * 4


def six(seconds):
    return int(6 * seconds)


def accepted():
    kept = admit(REQUESTS, decoding=DECODES, tokens_in=six)
    assert kept == [True, True, True, False]
    return [ask for ask, is_kept in zip(REQUESTS, kept, strict=True) if is_kept]


def test_slos_serve_keeps_three_by_deadlines_alone():
    played = replay(accepted(), DECODES, six, 30.0, hold=False)
    assert played.missed == []
    assert played.firsts() == {0: 2.0, 1: 4.0, 2: 6.0}
    assert played.tokens("prompt", "last") == [3] * 6 + [0] * 24
    assert played.tokens("decode") == [3] * 6 + [6] * 24


def test_slos_serve_keeps_three_and_holds_their_last_tokens():
    played = replay(accepted(), DECODES, six, 30.0, hold=True)
    assert played.missed == []
    assert played.firsts() == {0: 6.0, 1: 6.0, 2: 6.0}
    assert played.tokens("prompt") == [3] * 5 + [0] * 25
    assert played.tokens("last") == [0] * 5 + [3] + [0] * 24


@pytest.mark.parametrize("hold", [False, True])
def test_the_replay_sees_that_the_fourth_would_miss(hold):
    assert replay(REQUESTS, DECODES, six, 30.0, hold=hold).missed


def linear(rate, fixed_s):
    return lambda seconds: max(0, int(rate * (seconds - fixed_s) + 1e-9))


def world(rng):
    """Times are multiples of slots of 1, 2 and 4 s, so that rounds end when tokens are due."""
    rate, fixed_s = rng.uniform(1.0, 12.0), rng.choice([0.0, 0.3])
    tiers = [1.0, 2.0, 4.0][rng.randint(0, 2) :] + ([None] if rng.random() < 0.2 else [])
    asks = [Ask(4.0 * rng.randint(1, 6), rng.randint(1, 30), rng.choice(tiers)) for _ in range(rng.randint(1, 10))]
    decoding = [rng.choice([1.0, 2.0, 4.0]) for _ in range(rng.choice([0, 0, 2, 5]))]
    return asks, decoding, linear(rate, fixed_s)


@pytest.mark.thorough
@pytest.mark.parametrize("policy", ["dp", "edf"])
@pytest.mark.parametrize("hold", [False, True])
def test_every_accepted_set_plays_without_a_miss(policy, hold):
    rng, num_kept, num_refused = random.Random(0), 0, 0
    for _ in range(2_500):
        asks, decoding, tokens_in = world(rng)
        chosen = admit(asks, decoding=decoding, tokens_in=tokens_in, policy=policy)
        kept = [ask for ask, is_kept in zip(asks, chosen, strict=True) if is_kept]
        if not kept:
            continue
        played = replay(kept, decoding, tokens_in, 40.0, hold=hold)
        assert played.missed == [], (kept, decoding)
        for request, first in played.firsts().items():
            tpot_s = kept[request].tpot_s
            assert not hold or tpot_s is None or first > kept[request].deadline_s - tpot_s or first == played.ends[0]
        num_kept += len(kept)
        num_refused += len(asks) - len(kept)
    assert min(num_kept, num_refused) > 2_000


def test_with_one_tier_a_held_token_comes_when_it_is_due_and_so_do_all_after_it():
    rng = random.Random(1)
    for _ in range(1_000):
        tokens_in = linear(float(rng.randint(2, 9)), 0.0)
        asks = [Ask(float(rng.randint(1, 12)), rng.randint(1, 20), 1.0) for _ in range(6)]
        chosen = admit(asks, decoding=[1.0], tokens_in=tokens_in)
        kept = [ask for ask, is_kept in zip(asks, chosen, strict=True) if is_kept]
        played = replay(kept, [1.0], tokens_in, 24.0)
        assert played.missed == []
        assert played.firsts() == {number: ask.deadline_s for number, ask in enumerate(kept)}
