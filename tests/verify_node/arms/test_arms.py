"""The verify node's experiments with its arms: by hand, and in toy worlds of noisy rounds."""

import math
from copy import deepcopy
from itertools import islice

import pytest

from experiments.simulation.switchback import WORLDS, World, play, rates
from verify_node.arms import arms as arms_module
from verify_node.arms.arms import CHANGED_STRETCHES, FIRST_TRIALS, Arms
from verify_node.arms.comparisons import MIN_COMPARISONS, Arm
from verify_node.arms.stretches import COUNTED_ROUNDS, MAX_PASSED_OVER, SETTLING_ROUNDS, ArmRound, Stretch

ROUND_S = 0.03
STRETCH_ROUNDS = SETTLING_ROUNDS + COUNTED_ROUNDS
STRETCH_S = STRETCH_ROUNDS * ROUND_S
OTHERS = (Arm.NONE, Arm.NGRAM)


@pytest.fixture
def often(monkeypatch):
    """First trials follow each other as soon as they may, whatever they cost."""
    monkeypatch.setattr(arms_module, "FIRST_SHARE", 1.0)


def run(arms: Arms, num_rounds: int, speed: dict[Arm, float], *, num_sessions: int = 4, tokens: float = 4.0) -> None:
    """Rounds without any noise; a round of an arm takes ROUND_S over its speed."""
    for _ in range(num_rounds):
        arms.observe(ArmRound(tokens, tokens, ROUND_S / speed[arms.arm], num_sessions))


def stretch(arms: Arms, speed: dict[Arm, float], *, num_sessions: int = 4, tokens: float = 4.0) -> Arm:
    """Runs to the end of one stretch; returns its arm."""
    arm, current = arms.arm, arms._stretch
    while arms._stretch is current:
        run(arms, 1, speed, num_sessions=num_sessions, tokens=tokens)
    return arm


def best(arms: Arms) -> Arm:
    return arms.report().best


SAME = dict.fromkeys(Arm, 1.0)


class Waved:
    """A chooser on a machine whose speed goes up and down by a half every minute."""

    def __init__(self, arms: Arms) -> None:
        self.arms, self.now_s = arms, 0.0

    @property
    def arm(self) -> Arm:
        return self.arms.arm

    @property
    def best(self) -> Arm:
        return self.arms.best

    def observe(self, done: ArmRound) -> None:
        slow = 1.0 + 0.5 * math.sin(self.now_s * 2 * math.pi / 60.0)
        self.now_s += done.seconds * slow
        self.arms.observe(done._replace(seconds=done.seconds * slow))


# -- by hand -----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("often")
def test_a_stretch_of_another_arm_lies_between_two_of_the_best_one():
    arms = Arms()
    order = [stretch(arms, SAME) for _ in range(8)]
    best = Arm.MODEL
    assert order == [best, Arm.NONE, best, Arm.NGRAM, best, Arm.NONE, best, Arm.NGRAM]


@pytest.mark.usefixtures("often")
def test_a_rate_is_that_of_the_counted_rounds():
    """By hand: 4 tokens in 15 ms beside 4 in 30 ms; the 1,000 of the rounds that settle are not in it."""
    arms, speed = Arms(available=[Arm.NONE, Arm.MODEL]), {Arm.NONE: 2.0, Arm.MODEL: 1.0}
    stretch(arms, SAME)
    for _ in range(SETTLING_ROUNDS):
        arms.observe(ArmRound(1000.0, 4.0, ROUND_S, 4))  # ordered by the arm before
    stretch(arms, speed)
    stretch(arms, speed)
    [none, _] = arms.report().arms
    assert none.num_stretches == 1
    assert none.relative_rate == pytest.approx(2.0)


@pytest.mark.usefixtures("often")
def test_a_better_arm_becomes_the_best_after_a_few_comparisons():
    arms, speed = Arms(), SAME | {Arm.NONE: 1.5}
    for _ in range(4 * MIN_COMPARISONS + 1):  # every fourth stretch is one of its, up to the best arm's after the third
        assert best(arms) is Arm.MODEL or arms.report().arms[0].num_stretches == MIN_COMPARISONS
        stretch(arms, speed)
    report = arms.report()
    assert report.best is Arm.NONE
    assert report.num_changes == 1
    assert {one.arm: one.relative_rate for one in report.arms}[Arm.MODEL] == pytest.approx(1 / 1.5)


def test_a_difference_that_noise_explains_changes_nothing():
    """Stretches of one arm are a fifth apart, and so is the other one from their mean."""
    arms = Arms(available=[Arm.NONE, Arm.MODEL])
    for number in range(60):
        is_other = arms.arm is not arms.best
        stretch(arms, SAME, tokens=4.4 if is_other else (4.0, 4.8)[number // 2 % 2])
    assert best(arms) is Arm.MODEL
    assert arms.report().num_changes == 0


def test_what_is_known_is_referred_to_the_new_best_arm():
    """By hand: 1 to 2 and 1 to 1.5 is 0.5 and 0.75 of the new best one."""
    arms, speed = Arms(), {Arm.NONE: 1.5, Arm.NGRAM: 2.0, Arm.MODEL: 1.0}
    while best(arms) is not Arm.NGRAM:
        stretch(arms, speed)
    assert [one.relative_rate for one in arms.report().arms] == pytest.approx([0.75, 1.0, 0.5])


def test_a_stretch_that_delivered_nothing_says_nothing():
    arms, speed = Arms(), SAME | {Arm.NONE: 3.0, Arm.NGRAM: 3.0}
    for _ in range(40):
        stretch(arms, speed, tokens=0.0 if arms.arm is not arms.best else 4.0)
    assert best(arms) is Arm.MODEL
    assert [one.relative_rate for one in arms.report().arms] == [None, None, 1.0]


def test_stretches_of_very_different_load_are_not_compared():
    arms, speed = Arms(), SAME | {Arm.NONE: 3.0, Arm.NGRAM: 3.0}
    for _ in range(40):
        stretch(arms, speed, num_sessions=9 if arms.arm is not arms.best else 4)
    assert [one.relative_rate for one in arms.report().arms] == [None, None, 1.0]


def test_a_rate_is_compared_at_equal_load():
    """The rate goes with the number of sessions; an arm is not better because two more were there each time."""
    arms = Arms(available=[Arm.NONE, Arm.MODEL])
    for number in range(300):
        load = 6 if arms.arm is not best(arms) else (4, 5)[number // 2 % 2]
        stretch(arms, SAME, num_sessions=load, tokens=float(load))
    [none, _] = arms.report().arms
    assert none.relative_rate == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("explore", [-0.1, 1.0])
def test_a_share_must_be_a_share(explore):
    with pytest.raises(ValueError, match="share of the time"):
        Arms(explore)


# -- which arms there are ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("available", [(Arm.MODEL, Arm.NGRAM, Arm.NONE), (Arm.NGRAM, Arm.NONE), (Arm.NONE,)])
def test_without_exploring_the_arm_of_most_effort_is_taken(available):
    arms, speed = Arms(0.0, available, first=Arm.NGRAM), SAME | {Arm.NONE: 3.0}
    assert {stretch(arms, speed) for _ in range(50)} == {available[0]}


@pytest.mark.parametrize(
    ("available", "first", "taken"),
    [
        (tuple(Arm), Arm.NGRAM, Arm.NGRAM),
        (tuple(Arm), Arm.MODEL, Arm.MODEL),
        ((Arm.MODEL, Arm.NONE), Arm.NGRAM, Arm.MODEL),
        ((Arm.NONE, Arm.NGRAM), Arm.MODEL, Arm.NGRAM),
        ((Arm.NONE,), Arm.MODEL, Arm.NONE),
    ],
)
def test_the_first_arm_is_the_one_that_is_said_or_else_that_of_most_effort(available, first, taken):
    assert Arms(available=available, first=first).arm is taken


def test_an_arm_that_is_not_there_is_never_taken():
    arms = Arms(available=OTHERS)
    assert {stretch(arms, SAME) for _ in range(50)} == set(OTHERS)


@pytest.mark.parametrize("arm", list(Arm))
def test_nothing_is_tried_where_there_is_one_arm(arm):
    arms = Arms(available=[arm])
    assert {stretch(arms, SAME) for _ in range(50)} == {arm}
    report = arms.report()
    assert (report.best, report.explored_share, report.num_changes) == (arm, 0.0, 0)


# -- interruptions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_stretches", [1, 2, 3])
@pytest.mark.usefixtures("often")
def test_what_is_interrupted_begins_anew(num_stretches):
    """The best arm's first stretch, a trial or the best arm's second one was going on."""
    arms = Arms()
    for _ in range(num_stretches - 1):
        stretch(arms, SAME)
    run(arms, STRETCH_ROUNDS - 1, SAME)
    arms.resume()
    order = [stretch(arms, SAME | {Arm.MODEL: 1.25}) for _ in range(3)]
    assert [order[0], order[2]] == [Arm.MODEL] * 2
    known = {one.arm: one.relative_rate for one in arms.report().arms if one.relative_rate is not None}
    assert known == pytest.approx({Arm.MODEL: 1.0, order[1]: 1 / 1.25})  # no other one was compared


def test_trials_that_are_always_cut_short_take_a_small_share_of_the_time():
    arms = Arms()
    for _ in range(2_000):
        run(arms, STRETCH_ROUNDS * 3 // 2, SAME)
        arms.resume()
    report = arms.report()
    assert {one.relative_rate for one in report.arms} == {None, 1.0}
    assert 0.01 < report.explored_share < 0.03  # the first trials are in it


# -- how much is tried -------------------------------------------------------------------------------------------------


def explored_s(arms: Arms, before: float = 0.0) -> float:
    report = arms.report()
    return report.explored_share * arms._now_s - before


def test_first_trials_take_a_small_share_of_the_time_from_the_start():
    arms, shares = Arms(), []
    for _ in range(100):
        run(arms, STRETCH_ROUNDS, SAME)
        shares.append(arms.report().explored_share)
    assert 0.04 < max(shares) <= arms_module.FIRST_SHARE + 0.02  # and what `explore` allows beside them


def test_each_arms_first_trials_are_bounded():
    arms = Arms(explore=1e-9)
    run(arms, 20_000, SAME)
    assert [one.num_stretches for one in arms.report().arms] == [FIRST_TRIALS, FIRST_TRIALS, 0]


@pytest.mark.thorough
@pytest.mark.parametrize("difference", [0.0, 0.05, 0.5])
@pytest.mark.parametrize("world", WORLDS)
def test_exploration_is_a_small_share_of_the_time(world, difference):
    arms, share = Arms(), 0.02
    settings = World(rates(difference, Arm.NGRAM), **WORLDS[world])
    outcome = play(settings, arms, 30_000, seed=1)
    now_s = arms._now_s
    first_s = 3 * FIRST_TRIALS * 2 * STRETCH_S / (1 - difference)  # half the speed, as on a busy machine
    assert outcome.explored * now_s <= share * now_s + first_s
    assert outcome.explored * now_s > 0.0


def test_in_the_long_run_the_share_is_not_exceeded():
    arms = Arms()
    run(arms, 20_000, SAME)
    before_s, from_s = explored_s(arms), arms._now_s
    run(arms, 100_000, SAME)
    later = explored_s(arms, before_s) / (arms._now_s - from_s)
    assert 0.015 < later <= 0.02 + 2 * STRETCH_S / (arms._now_s - from_s)


def test_an_arm_that_is_slow_is_not_tried_beyond_its_share_of_the_time():
    """Shares are of time, not of rounds: a round of the other arm takes ten times as long."""
    arms = Arms(available=[Arm.NONE, Arm.MODEL])
    speed = {Arm.NONE: 0.1, Arm.MODEL: 1.0}
    run(arms, 3_000, speed)
    before_s, from_s = explored_s(arms), arms._now_s
    run(arms, 100_000, speed)
    assert explored_s(arms, before_s) <= 0.02 * (arms._now_s - from_s) + 10 * STRETCH_S  # the last one


def test_an_arm_that_is_known_to_be_worse_is_tried_at_growing_intervals(monkeypatch):
    arms, speed = Arms(), {Arm.NONE: 0.6, Arm.NGRAM: 0.6, Arm.MODEL: 1.0}
    tried = []
    for number in range(6_000):
        tried += [number] if stretch(arms, speed) is Arm.NONE else []
    gaps = [later - one for one, later in zip(tried, islice(tried, 1, None), strict=False)][MIN_COMPARISONS - 1 :]
    assert gaps == sorted(gaps)
    assert gaps[0] < gaps[-1] <= 1.2 * arms_module.MAX_GAP * len(OTHERS) / 0.02
    assert arms.report().explored_share < 0.01


def tried_after(arms: Arms, speed: dict[Arm, float], limit: int) -> int | None:
    """The number of the next stretch that is an experiment, if it is one of the next few."""
    ahead = deepcopy(arms)
    return next((number for number in range(limit) if stretch(ahead, speed) is not best(ahead)), None)


def test_a_change_of_the_machine_makes_all_arms_due_once_it_has_lasted():
    arms, speed = Arms(), {Arm.NONE: 0.6, Arm.NGRAM: 0.6, Arm.MODEL: 1.0}
    slow = {arm: 0.5 * of for arm, of in speed.items()}
    soon = CHANGED_STRETCHES + 2
    for _ in range(1000):
        stretch(arms, speed)
    for _ in range(200):
        if tried_after(arms, speed, 2 * soon) is None:  # no experiment is near
            break
        stretch(arms, speed)
    assert tried_after(arms, speed, 2 * soon) is None
    assert tried_after(arms, slow, soon) in range(CHANGED_STRETCHES - 1, soon)
    for number in range(2 * soon):
        assert stretch(arms, speed if number % CHANGED_STRETCHES else slow) is Arm.MODEL  # slow for a moment only


# -- what it finds -----------------------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("best", list(Arm))
def test_a_difference_of_a_twentieth_is_found_within_half_an_hour(best):
    """60,000 rounds of 30 ms whose tokens vary by a quarter; in nine of ten runs at least.

    It takes that long because the first trials are few: they cost a node that has just started most.
    """
    world = World(rates(0.05, best))
    found = [play(world, Arms(), 60_000, seed).ended_with is best for seed in range(10)]
    assert sum(found) >= 9


def test_a_loss_of_a_twentieth_in_pace_is_found_within_ten_minutes():
    """What drafts bring is noisy, and known from all rounds; what rounds take is less noisy, and that is compared."""
    world = World({Arm.NONE: 1.0, Arm.NGRAM: 0.95, Arm.MODEL: 0.95}, in_pace=True)
    found = [play(world, Arms(), 20_000, seed) for seed in range(10)]
    assert sum(one.ended_with is Arm.NONE for one in found) >= 9


def test_rounds_that_read_prompts_are_passed_over_unless_there_are_hardly_others():
    counted = Stretch()
    for _ in range(STRETCH_ROUNDS):
        counted.observe(ArmRound(4.0, 4.0, ROUND_S, 4, reads_prompts=False))
    assert counted.is_over
    mixed = Stretch()
    for number in range(SETTLING_ROUNDS + 2 * COUNTED_ROUNDS - 1):
        mixed.observe(ArmRound(4.0, 4.0, ROUND_S * (1 + number % 2), 4, reads_prompts=bool(number % 2)))
    assert mixed.is_over
    rate = mixed.rate()
    assert rate is not None
    assert rate.steps_per_s == pytest.approx(4.0 / ROUND_S)
    flooded = Stretch()
    for _ in range(STRETCH_ROUNDS + MAX_PASSED_OVER):
        flooded.observe(ArmRound(4.0, 4.0, ROUND_S, 4, reads_prompts=True))
    assert flooded.is_over


@pytest.mark.parametrize("texts_s", [2.0, 20.0, 200.0])
def test_texts_that_are_easy_and_hard_in_turns_are_no_difference_of_arms(texts_s):
    """Drafts bring half as much again in every second phase; one arm is 8 % better than the others all the time."""
    world = World(rates(0.08, Arm.MODEL), texts_s=texts_s)
    for seed in range(3):
        assert play(world, Arms(), 20_000, seed).num_changes == 0


@pytest.mark.parametrize("world", [name for name in WORLDS if "turns" not in name])
def test_an_arm_that_is_a_fifth_worse_is_left_within_three_minutes_and_for_good(world):
    settings = World(rates(0.2, Arm.NGRAM), **WORLDS[world])
    for seed in range(4):
        outcome = play(settings, Arms(), 15_000, seed)
        assert outcome.ended_with is Arm.NGRAM
        assert outcome.found_s < 180.0
        assert outcome.num_false == 0


def test_arms_that_change_places_are_followed():
    """The best arm becomes a fifth worse than the others after ten minutes, and theirs again after ten more."""
    world = World(rates(0.2, Arm.NGRAM), turns_s=600.0)
    for seed in range(3):
        outcome = play(world, Arms(), 38_000, seed)
        best = [next(arm for at, arm in reversed(outcome.history) if at <= now_s) for now_s in (300.0, 720.0)]
        assert best[0] is Arm.NGRAM
        assert best[1] is not Arm.NGRAM


@pytest.mark.parametrize("difference", [0.0, 0.2])
def test_a_drift_of_the_machine_is_no_difference_of_arms(difference):
    for seed in range(3):
        chooser = Waved(Arms())
        outcome = play(World(rates(difference, Arm.NGRAM)), chooser, 15_000, seed)
        assert outcome.num_changes == (1 if difference else 0)
        assert difference == 0.0 or outcome.ended_with is Arm.NGRAM
