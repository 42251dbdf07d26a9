"""Admission promises requests: cases by hand, then `dp` against a search of all sets; more capacity never hurts."""

import random
from dataclasses import replace
from math import inf, nan

import pytest

from goodspeed.errors import ConfigError
from goodspeed.slo.admit import ADMISSION, Ask, admit
from goodspeed.slo.feasible import Budget, Course, Decoding
from tests.slo.exhaustive import kept_sets
from tests.slo.worlds import World, draw

SIX = lambda seconds: int(6 * seconds)  # noqa: E731  six tokens a second


def six(*asks, decoding=(), pages=None, policy="dp"):
    return admit(asks, decoding=decoding, tokens_in=SIX, pages=pages, policy=policy)


def test_figure_3_of_slos_serve_three_of_four_are_promised():
    """6 (6 - 3) = 18 tokens for prompts by slot 6, and six decodes fill six tokens a slot from then on."""
    assert six(*[Ask(6.0, 6, 1.0)] * 4, decoding=[1.0] * 3) == [True, True, True, False]


def test_the_prompt_has_to_be_read_by_its_deadline():
    assert six() == []
    assert six(Ask(2.0, 12, None)) == [True]
    assert six(Ask(2.0, 13, None)) == [False]
    assert six(Ask(2.0, 7, None), decoding=[1.0] * 3) == [False], "six are left in two slots"
    assert six(Ask(2.0, 6, None), decoding=[1.0] * 3) == [True]


def test_what_is_left_before_one_deadline_serves_the_next():
    assert six(Ask(2.0, 6, None), Ask(3.0, 12, None), decoding=[9.0]) == [True, False]
    assert six(Ask(2.0, 5, None), Ask(3.0, 12, None), decoding=[9.0]) == [True, True]


def test_who_is_promised_first_decodes_while_others_are_read():
    later = Ask(4.0, 21, None)
    assert six(later) == [True]
    assert six(Ask(1.0, 1, 1.0), later) == [True, False], "5 are left after 1 s, and 15 in the next 3"
    assert six(Ask(1.0, 1, 3.0), later) == [True, True], "5, and 17"


def test_decoding_has_to_go_on_for_ever():
    one = Ask(100.0, 1, 1.0)
    assert six(one, decoding=[1.0] * 5) == [True]
    assert six(one, decoding=[1.0] * 6) == [False]
    assert six(Ask(100.0, 1, 0.5), decoding=[1.0] * 4) == [True], "two more a second"
    assert six(Ask(100.0, 1, 0.1)) == [False], "no round of a tenth of a second carries a token"
    assert six(Ask(1.0, 1, 1e-320)) == [False], "nor can a rate beyond all numbers be kept"
    assert six(Ask(100.0, 1, None), decoding=[1.0] * 7) == [False], "those who decode cannot be kept"


def test_a_deadline_that_is_over_cannot_be_kept():
    assert six(Ask(-1.0, 0, None), Ask(0.0, 0, None), Ask(0.0, 1, None)) == [False, True, False]


def test_the_tightest_who_decodes_sets_the_length_of_rounds():
    """Rounds of 1 s carry 8 tokens, rounds of 0.5 s carry 3: so the tight one takes 2 of 8 from the prompts, and 2."""
    tokens_in = lambda seconds: max(0, int(10 * (seconds - 0.2)))  # noqa: E731
    patient, tight = Ask(2.0, 12, None), Ask(0.0, 0, 0.5)
    assert admit([patient], decoding=[1.0], tokens_in=tokens_in) == [True]
    assert admit([patient, tight], decoding=[1.0], tokens_in=tokens_in, policy="edf") == [False, True]


def test_the_most_valuable_set_is_taken():
    small, large = Ask(1.0, 3, None, value=1.0), Ask(1.5, 8, None, value=1.5)
    assert six(small, large) == [False, True]
    assert six(small, large, policy="edf") == [True, False]
    assert six(small, small, large) == [True, True, False]


def test_no_more_memory_is_promised_than_is_free():
    asks = [Ask(1.0, 1, None, pages=4), Ask(1.0, 1, None, pages=3), Ask(1.0, 1, None, pages=3)]
    assert six(*asks, pages=9) == [True, True, False]
    assert six(*asks, pages=6) == [False, True, True]
    assert six(*asks, pages=0) == [False] * 3
    assert six(*asks, pages=6, policy="edf") == [True, False, False]


@pytest.mark.parametrize("policy", ADMISSION.names)
def test_who_was_promised_before_stays_and_while_that_cannot_be_kept_nothing_new_is_promised(policy):
    before, new = Ask(1.0, 6, None, promised=True), Ask(0.5, 1, None, value=9.0)
    assert six(before, new, policy=policy) == [True, False]
    assert six(new, before, policy=policy) == [False, True]
    assert six(before, Ask(2.0, 6, None)) == [True, True]
    assert six(Ask(1.0, 7, None, promised=True), Ask(99.0, 1, None), policy=policy) == [True, False]


@pytest.mark.parametrize("tokens", [nan, inf, -1.0])
def test_an_impossible_number_of_tokens_is_refused(tokens):
    with pytest.raises(ConfigError, match=r"tokens_in\(1.0\) is"):
        admit([Ask(1.0, 1, None)], tokens_in=lambda seconds: tokens)


def test_an_unknown_policy_is_refused():
    with pytest.raises(ConfigError, match="'later'; choose one of: dp, edf, none"):
        six(policy="later")


def best_value(world: World) -> float | None:
    """Returns the largest value of all sets that can be kept; None where there is none."""
    pages = inf if world.pages is None else world.pages
    sets = kept_sets(world.asks, world.decoding, world.tokens_in, pages)
    return max((sum(world.asks[place].value for place in one) for one in sets), default=None)


@pytest.mark.thorough
def test_dp_is_as_good_as_a_search_of_all_sets():
    rng, sizes = random.Random(0), []
    for _ in range(10_000):
        world = draw(rng, promised=rng.random() < 0.3)
        kept, best = world.admit(), best_value(world)
        if best is None:
            assert kept == [ask.promised for ask in world.asks], world
        else:
            assert world.value(kept) == pytest.approx(best), world
        sizes.append(sum(kept) - len(kept))
    assert sum(size < -1 for size in sizes) > 5_000, "most worlds cannot keep everything"


@pytest.mark.parametrize("policy", ["edf", "dp"])
def test_whatever_is_kept_can_be_kept_and_who_was_promised_is(policy):
    rng = random.Random(1)
    for _ in range(1_000):
        world = draw(rng, promised=True)
        kept = tuple(place for place, is_kept in enumerate(world.admit(policy)) if is_kept)
        pages = inf if world.pages is None else world.pages
        sets = [sorted(one) for one in kept_sets(world.asks, world.decoding, world.tokens_in, pages)]
        assert list(kept) in sets or not sets, world
        assert all(place in kept for place, ask in enumerate(world.asks) if ask.promised)


def test_more_time_memory_or_speed_never_lowers_the_value():
    rng = random.Random(2)
    for _ in range(2_000):
        world = draw(rng)
        value = world.value(world.admit()) - 1e-9
        later = [ask._replace(deadline_s=ask.deadline_s + 0.3) for ask in world.asks]
        assert replace(world, asks=later).value(world.admit(asks=later)) >= value, world
        assert world.value(world.admit(tokens_in=lambda s, own=world.tokens_in: 1.5 * own(s))) >= value, world
        if world.pages is not None:
            assert world.value(world.admit(pages=world.pages + 5)) >= value, world
            assert world.value(world.admit(pages=None)) >= value, world


@pytest.mark.parametrize("number", [12, 40, 400])
@pytest.mark.parametrize("num_tiers", [1, 3, 32])
def test_many_asks_are_decided_and_no_worse_than_by_edf(number, num_tiers):
    rng = random.Random(number)
    tiers = [0.05 * 1.1**tier for tier in range(num_tiers)]
    asks = [
        Ask(rng.uniform(0.5, 3.0), rng.randint(1, 50), rng.choice(tiers), rng.randint(50, 100), rng.uniform(1.0, 2.0))
        for _ in range(number)
    ]
    world = World(asks, [0.1] * 20, lambda seconds: int(4000 * max(0.0, seconds - 0.02)), 35 * number)
    kept = world.admit()
    accepted = [ask for ask, is_kept in zip(asks, kept, strict=True) if is_kept]
    course = Course(Budget(world.tokens_in), Decoding.of(world.decoding), 35 * number)
    assert course.after_all(sorted(accepted, key=lambda ask: ask.deadline_s)) is not None
    assert world.value(kept) >= world.value(world.admit("edf"))
