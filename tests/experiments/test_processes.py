"""Work in several processes: the same answers in the same order, and an error that stops it."""

import pytest

from experiments.harness.processes import each


def square(number: int) -> int:
    return number * number


def fail_at_three(number: int) -> int:
    if number == 3:
        raise ValueError("three is not wanted")
    return number


@pytest.mark.parametrize("processes", [1, 2])
def test_every_item_is_answered_in_order(processes: int) -> None:
    assert each("numbers", square, range(7), processes) == [0, 1, 4, 9, 16, 25, 36]


@pytest.mark.parametrize("processes", [1, 2])
def test_an_error_ends_it(processes: int) -> None:
    with pytest.raises(ValueError, match="three"):
        each("numbers", fail_at_three, range(200), processes)
