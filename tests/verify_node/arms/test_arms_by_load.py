"""Each load has experiments of its own, and they go on where they stopped."""

import pytest

from verify_node.arms.arms_by_load import ArmsByLoad
from verify_node.arms.comparisons import Arm

ROUND_S = 0.03


def run(arms: ArmsByLoad, num_rounds: int, num_sessions: int, speed: dict[Arm, float]) -> None:
    for _ in range(num_rounds):
        arms.observe(num_sessions, ROUND_S / speed[arms.arm], num_sessions)


@pytest.mark.parametrize(("num_sessions", "load"), [(1, 1), (2, 2), (3, 2), (4, 4), (7, 4), (8, 8), (1000, 512)])
def test_loads_double(num_sessions: int, load: int) -> None:
    arms = ArmsByLoad()
    for number in (100_000, num_sessions):
        arms.observe(1.0, ROUND_S, number)
    assert arms.load == load


def test_a_load_is_kept_while_the_number_of_sessions_wavers_at_its_bound() -> None:
    arms = ArmsByLoad()
    loads = []
    for number in (8, 7, 9, 6, 16, 20, 7, 5):
        arms.observe(1.0, ROUND_S, number)
        loads.append(arms.load)
    assert loads == [8, 8, 8, 8, 8, 8, 8, 4]


def test_one_session_begins_with_the_model_and_many_with_n_grams() -> None:
    arms, taken = ArmsByLoad(), []
    for number in (1, 8):
        arms.observe(1.0, ROUND_S, number)
        taken.append(arms.arm)
    assert taken == [Arm.MODEL, Arm.NGRAM]


def test_each_load_finds_its_own_best_arm_and_remembers_it() -> None:
    alone = {Arm.NONE: 0.5, Arm.NGRAM: 0.6, Arm.MODEL: 1.0}
    many = {Arm.NONE: 1.0, Arm.NGRAM: 0.6, Arm.MODEL: 0.5}
    arms = ArmsByLoad()
    for _ in range(4):
        run(arms, 1000, 1, alone)
        run(arms, 1000, 16, many)
    assert {load: report.best for load, report in arms.reports().items()} == {1: Arm.MODEL, 16: Arm.NONE}
    run(arms, 1, 1, alone)
    assert arms.report().best is Arm.MODEL


def test_what_is_available_holds_at_every_load() -> None:
    arms = ArmsByLoad()
    arms.available = (Arm.NONE, Arm.NGRAM)
    for number in (1, 2, 4, 64):
        arms.observe(1.0, ROUND_S, number)
        assert arms.available == (Arm.NONE, Arm.NGRAM)
        assert arms.arm is not Arm.MODEL


def test_without_exploring_the_model_of_time_decides_at_every_load() -> None:
    arms = ArmsByLoad(explore=0.0)
    for number in (1, 8, 64):
        run(arms, 500, number, dict.fromkeys(Arm, 1.0))
        assert arms.arm == Arm.MODEL


def test_a_stretch_does_not_go_on_across_a_change_of_load() -> None:
    arms = ArmsByLoad()
    run(arms, 20, 8, dict.fromkeys(Arm, 1.0))
    run(arms, 5, 1, dict.fromkeys(Arm, 1.0))
    arms.observe(1.0, ROUND_S, 8)
    assert arms._current._stretch.num_rounds == 0
