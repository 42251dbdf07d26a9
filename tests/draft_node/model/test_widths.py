"""How wide a step is: as wide as costs little time."""

from draft_node.model.widths import MAX_WIDTH, TRIED_AGAIN, Widths


def after(seconds: dict[int, float], num_jobs: int = 1) -> int:
    """The width after steps of these rows took so long."""
    widths = Widths()
    for num_rows, each in seconds.items():
        widths.observe(num_rows, each)
    return widths.choose(num_jobs)


def test_before_a_step_without_branches_was_measured_there_are_none():
    assert Widths().choose(1) == 1
    assert after({8: 1.0}) == 1


def test_it_is_the_widest_that_takes_little_longer():
    assert after({1: 1.0}) == MAX_WIDTH, "tried once"
    assert after({1: 1.0, 8: 1.4}) == 8
    assert after({1: 1.0, 8: 1.6}) == 4
    assert after({1: 1.0, 8: 9.0, 4: 5.0, 2: 3.0}) == 1, "a row costs a step"
    assert after({4: 1.0, 32: 3.0, 16: 1.2}, num_jobs=4) == 4


def test_steps_without_branches_are_measured_again():
    widths = Widths()
    widths.observe(1, 1.0)
    assert [widths.choose(1) for _ in range(TRIED_AGAIN)].count(1) == 1
    assert Widths(max_width=1).choose(1) == 1


def test_a_step_that_was_slow_once_is_tried_again():
    widths, chosen = Widths(), []
    widths.observe(1, 1.0)
    widths.observe(8, 20.0)
    for _ in range(20 * TRIED_AGAIN):
        chosen.append(widths.choose(1))
        widths.observe(chosen[-1], 1.0 if chosen[-1] == 1 else 1.2)
    assert chosen[0] == 4
    assert chosen[-TRIED_AGAIN:].count(8) >= TRIED_AGAIN - 2


def test_masks_are_no_branches():
    widths = Widths(num_parallel=8)
    widths.observe(8, 1.0)
    assert widths.choose(1) == MAX_WIDTH
    assert widths.choose(2) == 1, "16 rows without branches were not measured"
