"""Plots goodput and utility over rounds as a PNG, without a display."""

import math
from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from goodspeed.app.demo.state import INITIAL_GOODPUT, DemoState

COLORS = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#000000", "#56b4e9", "#8c510a")
"""Okabe and Ito's colours for colour-blind people, with brown in place of the faint yellow."""

STYLES = ("-", "--", ":", "-.")
"""Line styles: the first eight clients have solid lines, the next eight the same colours dashed, and so on."""

MAX_NAMED = len(COLORS) * len(STYLES)
ROUNDS = "number of the verify round"


def save(states: Mapping[str, DemoState], path: str) -> None:
    """Writes the file with one row of plots per run. states: by the run's name."""
    figure = Figure(figsize=(12.5, 0.9 + 3.4 * len(states)), layout="constrained")
    axes = figure.subplots(len(states), 2, squeeze=False, sharey="col", width_ratios=(1.35, 1))
    for row, (name, state) in zip(axes, states.items(), strict=True):
        draw_goodput(row[0], state, f"{name}: goodput of each client (a dot is the end of its text)")
        draw_utility(row[1], state, f"{name}: log-utility (fast and fair is high)")
    figure.savefig(path, dpi=120, format="png")


def goodput_series(state: DemoState, name: str) -> tuple[list[int], list[float]]:
    """Returns (rounds, goodput estimates) of a client, for the rounds that updated its estimate."""
    points = [(number, goodputs[name]) for number, goodputs in state.history if name in goodputs]
    return [number for number, _ in points], [goodput for _, goodput in points]


def utility_series(state: DemoState) -> tuple[list[int], list[float]]:
    """Returns (rounds, sums of log goodput over clients); a finished client counts with its final estimate."""
    latest, utilities = dict.fromkeys(state.progress, INITIAL_GOODPUT), list[float]()
    for _, goodputs in state.history:
        latest |= goodputs
        utilities.append(sum(math.log(max(value, 1e-9)) for value in latest.values()))
    return [number for number, _ in state.history], utilities


def draw_goodput(axes: Axes, state: DemoState, title: str) -> None:
    """Draws one curve per client, with a legend beside the curves."""
    for index, (name, one) in enumerate(state.progress.items()):
        color, style = COLORS[index % len(COLORS)], STYLES[index // len(COLORS) % len(STYLES)]
        numbers, goodputs = goodput_series(state, name)
        label = f"{name} {one.client.domain}".rstrip()
        axes.plot(numbers, goodputs, linewidth=1.5, color=color, linestyle=style, label=label)
        if one.finish_reason:
            axes.plot(numbers[-1:], goodputs[-1:], "o", markersize=4.5, color=color)
    axes.set_title(title, loc="left", fontsize="medium")
    axes.set(xlabel=ROUNDS, ylabel="tokens per round, smoothed")
    axes.grid(alpha=0.25)
    if len(state.progress) <= MAX_NAMED:
        axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)


def draw_utility(axes: Axes, state: DemoState, title: str) -> None:
    axes.plot(*utility_series(state), color="black", linewidth=1.5)
    axes.set_title(title, loc="left", fontsize="medium")
    axes.set(xlabel=ROUNDS, ylabel="sum of ln(tokens per round) over the clients")
    axes.grid(alpha=0.25)
