"""Work in several processes: the same answers in the same order."""

import pytest

from experiments.harness.processes import each


def square(number: int) -> int:
    return number * number


@pytest.mark.parametrize("processes", [1, 2])
def test_every_item_is_answered_in_order(processes: int) -> None:
    assert each("numbers", square, range(7), processes) == [0, 1, 4, 9, 16, 25, 36]
