"""Each situation has experiments of its own, and they go on where they stopped."""

from collections.abc import Collection

import pytest

from verify_node.arms.by_situation import PATIENCE_ABOVE, PATIENCE_BELOW, ArmsBySituation
from verify_node.arms.comparisons import Arm
from verify_node.arms.stretches import ArmRound

ROUND_S = 0.03
ALL, NO_MODEL, ALONE = tuple(Arm), (Arm.NONE, Arm.NGRAM), (Arm.NONE,)
SAME = dict.fromkeys(Arm, 1.0)


def run(
    arms: ArmsBySituation,
    num_rounds: int,
    num_sessions: int,
    speed: dict[Arm, float] = SAME,
    available: Collection[Arm] = ALL,
) -> list[Arm]:
    """Rounds in one situation; returns their arms."""
    arms.turn_to(num_sessions, available)
    taken = []
    for _ in range(num_rounds):
        taken.append(arms.arm)
        arms.observe(ArmRound(num_sessions, num_sessions, ROUND_S / speed[arms.arm], num_sessions))
        arms.turn_to(num_sessions, available)
    return taken


# -- loads -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("num_sessions", "load"), [(1, 1), (2, 2), (3, 2), (4, 4), (7, 4), (8, 8), (1000, 512)])
def test_loads_double(num_sessions: int, load: int) -> None:
    arms = ArmsBySituation()
    for number in (100_000, num_sessions):
        arms.turn_to(number, ALL)
    assert arms.load == load


def test_a_load_is_kept_while_the_number_of_sessions_wavers_at_its_bound() -> None:
    arms = ArmsBySituation()
    loads = []
    for number in (8, 7, 9, 6, 16, 20, 7, 5):
        arms.turn_to(number, ALL)
        loads.append(arms.load)
    assert loads == [8, 8, 8, 8, 8, 8, 8, 4]


def test_a_load_is_left_when_the_number_of_sessions_stays_beyond_its_bound() -> None:
    """Sessions that come one by one must not leave eight of them in the load of four."""
    arms = ArmsBySituation()
    for number in range(1, 8):
        arms.turn_to(number, ALL)
    assert arms.load == 4
    loads = []
    for _ in range(PATIENCE_ABOVE):
        arms.turn_to(8, ALL)
        loads.append(arms.load)
    assert loads == [4] * (PATIENCE_ABOVE - 1) + [8]
    assert arms.arm is Arm.NGRAM


def test_a_number_that_wavers_about_a_bound_leaves_the_larger_load_only_after_long() -> None:
    arms = ArmsBySituation()
    arms.turn_to(8, ALL)
    for num_rounds, load in ((PATIENCE_ABOVE * 3, 8), (PATIENCE_BELOW, 4)):
        for number in (8, 7):
            for _ in range(num_rounds):
                arms.turn_to(number, ALL)
        assert arms.load == load


def test_each_load_finds_its_own_best_arm_and_remembers_it() -> None:
    alone = {Arm.NONE: 0.5, Arm.NGRAM: 0.6, Arm.MODEL: 1.0}
    many = {Arm.NONE: 1.0, Arm.NGRAM: 0.6, Arm.MODEL: 0.5}
    arms = ArmsBySituation()
    for _ in range(4):
        run(arms, 1000, 1, alone)
        run(arms, 1000, 16, many)
    assert arms.report().best is Arm.NONE
    arms.turn_to(1, ALL)
    assert arms.report().best is Arm.MODEL


# -- sets of arms ------------------------------------------------------------------------------------------------------


def test_each_set_finds_its_own_best_arm_and_remembers_it() -> None:
    """What is best of two is not best beside a third."""
    speed = {Arm.NONE: 0.5, Arm.NGRAM: 0.7, Arm.MODEL: 1.0}
    arms = ArmsBySituation()
    for _ in range(4):
        run(arms, 1000, 8, speed)
        run(arms, 1000, 8, speed | {Arm.NONE: 1.0}, NO_MODEL)
    assert arms.report().best is Arm.NONE
    arms.turn_to(8, ALL)
    assert arms.report().best is Arm.MODEL


@pytest.mark.parametrize("available", [ALL, NO_MODEL])
def test_rounds_that_want_no_drafts_leave_the_best_arm_of_others(available: tuple[Arm, ...]) -> None:
    speed = {Arm.NONE: 1.0, Arm.NGRAM: 1.5, Arm.MODEL: 0.7}
    arms = ArmsBySituation()
    run(arms, 10_000, 1, speed, available)
    for _ in range(10):
        assert set(run(arms, 100, 1, available=ALONE)) == {Arm.NONE}
        assert run(arms, 20, 1, speed, available) == [Arm.NGRAM] * 20


def test_what_is_not_there_is_not_taken_at_any_load() -> None:
    arms = ArmsBySituation()
    for number in (1, 2, 4, 64):
        assert set(run(arms, 500, number, available=NO_MODEL)) == set(NO_MODEL)


@pytest.mark.parametrize("num_sessions", [1, 8, 64])
def test_nothing_is_tried_in_a_set_of_one(num_sessions: int) -> None:
    arms = ArmsBySituation()
    assert set(run(arms, 5000, num_sessions, available=ALONE)) == {Arm.NONE}
    report = arms.report()
    assert (report.best, report.explored_share, report.num_changes) == (Arm.NONE, 0.0, 0)


# -- both --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("num_sessions", "available", "first"),
    [
        (1, ALL, Arm.MODEL),
        (7, ALL, Arm.MODEL),
        (8, ALL, Arm.NGRAM),
        (1, NO_MODEL, Arm.NGRAM),
        (8, NO_MODEL, Arm.NGRAM),
        (1, (Arm.NONE, Arm.MODEL), Arm.MODEL),
        (8, (Arm.NONE, Arm.MODEL), Arm.MODEL),
        (8, ALONE, Arm.NONE),
    ],
)
def test_few_sessions_begin_with_the_model_and_many_with_n_grams(
    num_sessions: int, available: tuple[Arm, ...], first: Arm
) -> None:
    arms = ArmsBySituation()
    run(arms, 500, 16)  # what was found elsewhere is of no account
    arms.turn_to(num_sessions, available)
    assert arms.arm is first


def test_without_exploring_the_model_of_time_decides_in_every_situation() -> None:
    arms = ArmsBySituation(explore=0.0)
    for number in (1, 8, 64):
        for available in (ALL, NO_MODEL, ALONE):
            assert set(run(arms, 500, number, available=available)) == {available[-1]}


@pytest.mark.parametrize(("num_sessions", "available"), [(1, ALL), (8, NO_MODEL)])
def test_a_stretch_does_not_go_on_across_another_situation(num_sessions: int, available: tuple[Arm, ...]) -> None:
    arms = ArmsBySituation()
    run(arms, 20, 8)
    run(arms, 5, num_sessions, available=available)
    arms.turn_to(8, ALL)
    assert arms._current._stretch.num_rounds == 0


def test_a_stretch_goes_on_while_the_situation_stays() -> None:
    arms = ArmsBySituation()
    for number in (8, 9, 7, 10):  # within the load's bounds; the set in any order
        arms.turn_to(number, ALL[::-1] if number % 2 else ALL)
        arms.observe(ArmRound(1.0, 1.0, ROUND_S, number))
    assert arms._current._stretch.num_rounds == 4


@pytest.mark.parametrize(("is_shared", "first"), [(True, Arm.NGRAM), (False, Arm.MODEL)])
def test_many_sessions_begin_with_models_where_these_do_not_share_the_machine(is_shared: bool, first: Arm) -> None:
    arms = ArmsBySituation(is_shared=is_shared)
    arms.turn_to(8, set(Arm))
    assert arms.arm is first
