"""The arithmetic of growth, where the truth is known."""

import numpy as np
import pytest

from tests.faults.soak.slopes import slope


def test_noise_and_one_step_are_flat_and_a_leak_is_not() -> None:
    """Memory that wanders by 2 MB and comes back, with and without 40 MB an hour on top; a cache that fills once."""
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
    step = slope(times, np.where(times < 1300.0, 400.0, 420.0))
    assert (step.first, step.last) == (400.0, 420.0)
    assert step.least_squares > 20.0
    assert step.is_flat(5.0)
    assert not slope(times, 400.0 + 5.0 * (times // 135.0)).is_flat(5.0)
    assert not slope(times, 400.0 + np.maximum(0.0, times - 1800.0) / 36.0).is_flat(5.0), "it begins late, and goes on"
    line = slope(times, 300.0 + 12.0 * times / 3600)
    assert line.least_squares == pytest.approx(12.0)
    assert line.theil_sen == pytest.approx(12.0)
    assert (line.is_flat(5.0), line.is_flat(12.5)) == (False, True)
    with pytest.raises(ValueError, match="at least three samples"):
        slope([1.0, 2.0], [1.0, 2.0])
