"""Panels that show the stored results of `experiments.live`: of its picture, and one by one for a notebook."""

from collections.abc import Callable
from io import BytesIO
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from experiments import fig2_estimation, fig4_convergence
from experiments.fig4_convergence import OURS
from experiments.harness import styles
from experiments.harness.experiment import Results, new_figure

PAPER, DEFAULT, UNEQUAL = "the paper's rounds", "default rounds", "unequal users"
"""The kinds of rounds; the last are default ones, too."""

FIG4, SERVED = "fig4", "served"
"""The figures that rows of the results name as theirs."""

TICKS = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)


def rows_of(results: Results, figure: str, world: str) -> list[dict[str, Any]]:
    """Returns a figure's rows of one kind of rounds."""
    kind = "setting" if figure == FIG4 else "world"
    return [row for row in results.rows if row["figure"] == figure and row[kind] == world]


def estimates(panel: Axes, results: Results, world: str = PAPER) -> None:
    """Fig. 2: estimated and measured goodput of all clients together."""
    fig2_estimation.draw_panel(panel, [row for row in results.curves if row["setting"] == world])
    panel.set_title(f"{world}, {OURS}, first seed")


def utility(panel: Axes, results: Results, world: str = PAPER) -> None:
    """Fig. 4: U of the mean goodput so far, by policy, and the optimum."""
    fig4_convergence.draw_panel(panel, rows_of(results, FIG4, world))
    panel.set_title(world)


def speeds(panel: Axes, results: Results, world: str = DEFAULT) -> None:
    """Tokens a second of each client, by policy."""
    served = rows_of(results, SERVED, world)
    fig4_convergence.draw_served(panel, served, [row["way"] for row in served])
    names = served[0]["clients"]
    panel.set_xticks(range(1, len(names) + 1), names, rotation=30, ha="right")
    panel.yaxis.set_major_locator(LogLocator(subs=TICKS))
    panel.yaxis.set_major_formatter("{x:g}")


def above(panel: Axes, results: Results) -> None:
    """Draws how far the log-utility of tokens/s is above that of each other policy, in every kind of rounds."""
    served = [row for row in results.rows if row["figure"] == SERVED and row["way"] != OURS]
    worlds = list(dict.fromkeys(row["world"] for row in served))
    for policy, number in styles.numbers((row["way"] for row in served), OURS).items():
        own = [row for row in served if row["way"] == policy]
        places = [worlds.index(row["world"]) + 0.1 * number for row in own]
        style = styles.curve(number, len(own)) | {"linestyle": "none", "capsize": 4.0}
        half = [row["ours_above_ci"] for row in own]
        panel.errorbar(places, [row["ours_above"] for row in own], half, label=policy, **style)
    panel.axhline(0.0, color="black", linewidth=1)
    panel.set_xticks(range(len(worlds)), worlds)
    panel.set(xlim=(-0.5, len(worlds)), ylabel=f"ln(tokens/s) by which {OURS} is above, mean of clients")


class Picture:
    """One panel as a notebook shows it."""

    def __init__(self, draw: Callable[..., None], results: Results, *world: str, title: str) -> None:
        figure = new_figure(8.0, 4.8)
        draw(figure.subplots(), results, *world)
        self.figure: Figure = styles.finish(figure, title, OURS)

    def _repr_png_(self) -> bytes:
        image = BytesIO()
        self.figure.savefig(image, format="png", dpi=100, bbox_inches="tight", metadata={"Software": None})
        return image.getvalue()
