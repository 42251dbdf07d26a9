"""Parts of SLOs-Serve's scenarios: lengths, a window at a rate, and the highest load."""

from random import Random
from statistics import fmean, quantiles

import pytest

from experiments.simulation.open_loop.stages import Lengths
from experiments.simulation.open_loop.threshold import highest


@pytest.mark.parametrize(
    ("mean", "p99"),
    [(763, 1591), (266, 619), (847, 2010), (26, 232), (1333, 1946), (202, 1508), (690, 2131), (5496, 8500)],
)
def test_lengths_have_the_mean_and_the_percentile(mean, p99):
    random, lengths = Random(1), Lengths(mean, p99)
    drawn = [lengths.drawn(random.random()) for _ in range(20_000)]
    assert fmean(drawn) == pytest.approx(mean, rel=0.03)
    assert quantiles(drawn, n=100)[-1] == pytest.approx(p99, rel=0.05)
    assert min(drawn) >= 1
    assert max(drawn) < 2 * p99


@pytest.mark.parametrize("start", [1, 30, 47, 48, 300])
@pytest.mark.parametrize("threshold", [0, 1, 47, 300])
def test_the_highest_load_is_found_from_any_guess(start, threshold):
    asked = []

    def violations(number):
        asked.append(number)
        return 0.05 if number <= threshold else 0.2

    assert highest(violations, 0.1, start=start, most=300, ratio=1.0) == threshold
    assert len(asked) == len(set(asked)) < 30
    assert highest(lambda number: number / 1000, 0.02, start=start, most=300, ratio=1.0) == 20
