"""The benchmark of the scheduler: every figure stands beside the input that it was measured on."""

from typing import Any

from experiments.benchmarks import scheduler
from experiments.benchmarks.scheduler import INPUTS, Size, draw, measure, table, time_aware

SIZE = Size(8, 28, 100e-6, 3)


def test_every_figure_stands_beside_its_input():
    result: dict[str, Any] = measure(SIZE)
    assert result["exact"]
    lines = table([result]).splitlines()
    for name, told in INPUTS.items():
        figure = f"{result[f'{name}_median_s'] * 1e6:,.0f}"
        (line,) = [line for line in lines if line.split()[0] == figure and told.text in line]
        assert line.endswith(f"{result[f'{name}_ratio']:.1f} x Eq. (5)")


class Watched:
    """A policy that keeps what it was asked."""

    def __init__(self):
        self.asked = set()

    def allocate(self, states, budget):
        self.asked.add((states[0].draft_s_per_token, states[0].round_trip_s, states[0].ahead))


def test_the_inputs_reach_the_policy_as_they_are_printed(monkeypatch):
    watched = Watched()
    monkeypatch.setattr(scheduler, "create", lambda *_, **__: watched)
    time_aware(draw(8).states(), SIZE, 1.0)
    assert watched.asked == {(0.0, 0.0, 0.0), (0.0005, 0.001, 0.0), (0.0005, 0.001, 0.9)}
    assert [told.text.partition(", ")[2] for told in INPUTS.values()] == [
        "drafts are there at once",
        "0.5 ms a drafted token, 1 ms of round trip, nothing made ahead",
        "0.5 ms a drafted token, 1 ms of round trip, 90% made ahead in time",
    ]
