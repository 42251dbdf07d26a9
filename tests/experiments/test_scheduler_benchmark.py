"""The benchmark of the scheduler: its figures are of an exact scheduler, each beside what it is of."""

from typing import Any

from experiments.benchmarks.scheduler import Size, measure, table


def test_every_figure_stands_beside_what_it_is_of():
    result: dict[str, Any] = measure(Size(8, 28, 100e-6, 3))
    assert result["exact"]
    lines = table([result]).splitlines()
    for name, told in (("list_median_s", "as the verify node calls it"), ("array_median_s", "arrays")):
        figure = f"{result[name] * 1e6:,.0f}"
        assert any(line.split()[0] == figure and told in line for line in lines)
