"""A step is as wide as promises most accepted tokens a second."""

import pytest

from goodspeed.drafting.step_size import MAX_WIDTH, TRIED_AGAIN, UNMEASURED, PrefillRows, Widths

EVEN = [0.5] * MAX_WIDTH
"""Leaves of which each is worth as much as the first."""


def after(seconds: dict[int, float], *jobs: list[float]) -> int:
    """The width after steps of these rows took so long."""
    widths = Widths()
    for num_rows, each in seconds.items():
        widths.observe(num_rows, each)
    return widths.choose(jobs)


def test_before_a_step_without_branches_was_measured_there_are_none():
    assert Widths().choose([EVEN]) == 1
    assert after({8: 1.0}, EVEN) == 1


def test_it_is_the_one_that_promises_most_a_second():
    assert after({1: 1.0}, EVEN) == MAX_WIDTH, "tried once"
    assert after({1: 1.0, 8: 7.9, 4: 4.1, 2: 2.1}, EVEN) == 8, "8 / 7.9"
    assert after({1: 1.0, 8: 9.0, 4: 3.9, 2: 2.1}, EVEN) == 4, "4 / 3.9"
    assert after({1: 1.0, 8: 9.0, 4: 5.0, 2: 3.0}, EVEN) == 1, "a row costs more than a step"
    assert after({1: 1.0, 2: 1.3}, [0.9, 0.1]) == 1, "1.0 tokens in 1.3 s"
    assert after({1: 1.0, 2: 1.3}, [0.5, 0.2]) == 2, "0.7 in 1.3 s, and 0.5 in 1 s"
    assert after({1: 1.0}, [0.9]) == 1, "there are no more leaves"
    assert after({1: 1.0}) == 1


def test_the_leaves_of_all_proposals_count():
    seconds = {2: 1.0, 4: 1.5}
    assert after(seconds, [0.6, 0.4], [0.6, 0.4]) == 2, "2.0 in 1.5 s, and 1.2 in 1 s"
    assert after(seconds, [0.6, 0.4], [0.9, 0.1]) == 1
    assert after({2: 1.0, 3: 1.0}, [0.6, 0.4], [0.9]) == 2, "three rows take as long as two"


def test_steps_without_branches_are_measured_again():
    widths = Widths()
    widths.observe(1, 1.0)
    assert [widths.choose([EVEN]) for _ in range(TRIED_AGAIN)].count(1) == 1
    assert Widths(max_width=1).choose([EVEN]) == 1


def test_a_step_that_was_slow_once_is_tried_again():
    widths, chosen = Widths(), []
    widths.observe(1, 1.0)
    widths.observe(8, 20.0)
    for _ in range(20 * TRIED_AGAIN):
        chosen.append(widths.choose([EVEN]))
        widths.observe(chosen[-1], 1.0 if chosen[-1] == 1 else 1.2)
    assert chosen[0] == 4
    assert chosen[-TRIED_AGAIN:].count(8) >= TRIED_AGAIN - 2


def test_masks_are_no_branches():
    widths = Widths(num_parallel=8)
    widths.observe(8, 1.0)
    assert widths.choose([EVEN]) == MAX_WIDTH
    assert widths.choose([EVEN, EVEN]) == 1, "16 rows without branches were not measured"
    widths.observe(24, 1.0)
    widths.observe(45, 2.0)
    assert widths.choose([EVEN] * 3) < MAX_WIDTH, "eight tokens behind the first leaf: 22.5 in 2 s, and 12 in 1 s"


def test_a_step_prefills_what_makes_it_less_than_three_times_as_long() -> None:
    rows = PrefillRows(256)
    for _ in range(5):
        rows.observe(0, 0.04)
    took = []
    for _ in range(12):
        took.append(0.04 + 0.002 * rows.most)
        rows.observe(rows.most, took[-1])
    assert all(0.09 <= seconds <= 0.12 for seconds in took[5:])


def test_where_rows_take_no_time_a_step_prefills_whole_chunks() -> None:
    rows = PrefillRows(256)
    rows.observe(0, 0.01)
    rows.observe(256, 1.0)
    assert rows.most == 128
    for _ in range(3):
        rows.observe(rows.most, 0.01)
    assert rows.most == 256
    rows.observe(3, 0.01)
    assert rows.most == 256, "a short prompt shows little"


@pytest.mark.parametrize("row_s", [0.15, 0.023, 0.0001])
def test_steps_with_nothing_but_prompts_take_about_a_second(row_s: float) -> None:
    rows, took = PrefillRows(256), []
    for _ in range(20):
        took.append(row_s * rows.alone)
        rows.observe_alone(rows.alone, took[-1])
    assert all(0.8 <= seconds <= 1.2 for seconds in took[-5:])
    assert sum(seconds > 5.0 for seconds in took) <= 1, "of many such steps in a row the model would rest for minutes"
    known = rows.alone
    rows.observe_alone(3, 0.01)
    assert rows.alone == known, "a short prompt shows little"
    rows.observe_alone(3, 60.0)
    assert rows.alone >= known // 2, "nor does a pause"


def test_a_step_beside_others_that_takes_seconds_is_halved_before_any_without_prefill_was_seen() -> None:
    rows = PrefillRows(256)
    rows.observe(256, 6.4)
    assert rows.most == 128
    rows.observe(128, 0.9)
    assert rows.most == 128


def test_steps_that_became_longer_without_prefill_are_noticed_beside_prompts_that_never_end() -> None:
    rows = PrefillRows(256)
    for _ in range(20):
        rows.observe(0, 0.01)
    chosen = []
    for _ in range(20 * UNMEASURED):
        chosen.append(rows.choose())
        rows.observe(chosen[-1], 0.06 + 0.0002 * chosen[-1])  # more sessions draft now
    assert chosen[UNMEASURED] == 0
    assert chosen[-UNMEASURED:].count(0) <= 1
    assert max(chosen[-UNMEASURED:]) == 256
