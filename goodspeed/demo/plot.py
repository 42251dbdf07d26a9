"""Goodput and utility over rounds as a PNG. Knows nothing about screens: it draws into memory and writes a file."""

import math
from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from goodspeed.demo.state import INITIAL_GOODPUT, DemoState


def save(states: Mapping[str, DemoState], path: str) -> None:
    """One row of pictures for each run, by the name of its policy."""
    figure = Figure(figsize=(11, 0.6 + 3.4 * len(states)), layout="constrained")
    axes = figure.subplots(len(states), 2, squeeze=False, sharey="col")
    for row, (policy, state) in zip(axes, states.items(), strict=True):
        _draw_goodput(row[0], state, f"{policy}: goodput of each client")
        _draw_utility(row[1], state, f"{policy}: log-utility")
    figure.savefig(path, dpi=120, format="png")


def goodput_series(state: DemoState, name: str) -> tuple[list[int], list[float]]:
    """A client's goodput estimate in the rounds that observed it."""
    points = [(number, goodputs[name]) for number, goodputs in state.history if name in goodputs]
    return [number for number, _ in points], [goodput for _, goodput in points]


def utility_series(state: DemoState) -> tuple[list[int], list[float]]:
    """Sum of log goodput over all clients after every round; who is done keeps its last estimate."""
    latest = dict.fromkeys(state.progress, INITIAL_GOODPUT)
    numbers: list[int] = []
    utilities: list[float] = []
    for number, goodputs in state.history:
        latest |= goodputs
        numbers.append(number)
        utilities.append(sum(math.log(max(value, 1e-9)) for value in latest.values()))
    return numbers, utilities


def _draw_goodput(axes: Axes, state: DemoState, title: str) -> None:
    for name, one in state.progress.items():
        axes.plot(*goodput_series(state, name), linewidth=1.2, label=one.client.domain or name)
    axes.set(title=title, xlabel="verify round", ylabel="tokens per round, smoothed")
    if len(state.progress) <= 16:
        axes.legend(fontsize="small", ncols=2)


def _draw_utility(axes: Axes, state: DemoState, title: str) -> None:
    axes.plot(*utility_series(state), color="black", linewidth=1.2)
    axes.set(title=title, xlabel="verify round", ylabel="sum of log goodput")
