"""The arithmetic of growth: cases by hand, then noise of which the truth is known."""

import numpy as np
import pytest

from tests.faults.soak.slopes import NUM_BLOCKS, blocks, least_squares, slope, theil_sen


def test_a_line_is_found_without_error() -> None:
    times = [5.0 * n for n in range(120)]
    told = slope(times, [300.0 + 12.0 * t / 3600 for t in times])
    assert told.least_squares == pytest.approx(12.0)
    assert told.theil_sen == pytest.approx(12.0)
    assert told.error == pytest.approx(0.0, abs=1e-6)
    assert not told.is_flat(5.0)
    assert told.is_flat(12.5)
    assert told.first < told.last
    assert (told.span_s, told.num_samples) == (595.0, 120)


def test_three_points_by_hand() -> None:
    """Through (0, 0), (1, 1), (2, 5): slope 5/2, and the rest (1/2, -1, 1/2) leaves an error of sqrt(3/2 / 1 / 2)."""
    x, y = np.array([0.0, 1.0, 2.0]), np.array([0.0, 1.0, 5.0])
    assert least_squares(x, y) == pytest.approx((2.5, np.sqrt(0.75)))
    assert theil_sen(x, y) == 2.5  # of 1, 4, 5/2
    assert least_squares(x[:2], y[:2]) == (1.0, float("inf"))


def test_blocks_are_of_equal_time_and_outliers_do_not_count() -> None:
    times = np.arange(1600.0)
    values = np.where(times % 100 == 50, 1e6, 7.0)
    middles, medians = blocks(times, values)
    assert len(middles) == NUM_BLOCKS
    assert set(medians) == {7.0}
    gap = np.concatenate([times[:100], times[-100:]])  # nothing in between
    assert len(blocks(gap, gap)[0]) < NUM_BLOCKS


def test_noise_is_flat_and_a_leak_in_it_is_not() -> None:
    """Memory that wanders by 2 MB and comes back, with and without 40 MB an hour on top."""
    rng = np.random.default_rng(1)
    times = np.arange(0.0, 2700.0, 5.0)
    wandering = np.zeros(len(times))
    for n in range(1, len(times)):
        wandering[n] = 0.9 * wandering[n - 1] + rng.normal(0.0, 0.9)
    assert slope(times, 400.0 + wandering).is_flat(5.0)
    leaking = slope(times, 400.0 + wandering + 40.0 * times / 3600)
    assert not leaking.is_flat(5.0)
    assert leaking.least_squares == pytest.approx(40.0, abs=10.0)
    assert slope(times, 400.0 + wandering - 40.0 * times / 3600).is_flat(5.0), "what shrinks does not grow"


def test_one_step_is_told_by_its_medians() -> None:
    """A cache that fills once looks like growth in a line; steps that go on are growth."""
    times = np.arange(0.0, 2700.0, 5.0)
    told = slope(times, np.where(times < 1300.0, 400.0, 420.0))
    assert (told.first, told.last) == (400.0, 420.0)
    assert told.least_squares > 20.0
    assert told.is_flat(5.0)
    assert not slope(times, 400.0 + 5.0 * (times // 135.0)).is_flat(5.0)
    assert not slope(times, 400.0 + np.maximum(0.0, times - 1800.0) / 36.0).is_flat(5.0), "it begins late, and goes on"


@pytest.mark.parametrize("times", [[], [1.0, 2.0], [3.0, 3.0, 3.0]])
def test_too_little_is_refused(times: list[float]) -> None:
    with pytest.raises(ValueError, match="at least three samples"):
        slope(times, times)
