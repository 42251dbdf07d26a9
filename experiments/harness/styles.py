"""One set of colours, lines, markers and hatches tells curves and bars apart, and marks ours.

The first six colours are Okabe and Ito's without black and yellow: black is for what is not measured (an optimum, a
level), and yellow is too light on white. The other six were searched for so that no two of the twelve look alike to
readers with any kind of colour blindness, nor like black or white.
"""

import textwrap
from collections.abc import Iterable
from typing import Any

from matplotlib.artist import Artist
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"),
    *("#602000", "#000080", "#8020E0", "#402040", "#A0E080", "#E00040"),
)
LINES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "*", "h")
HATCHES = ("", "//", "..", "\\\\", "xx", "--")
MAX_MARKS = 12
"""The most markers on a curve. Longer curves are marked at intervals, shifted from curve to curve."""

WIDEST, NARROWEST = 3.4, 1.2
KNOWN = {name: number for number, name in enumerate(("gradient", "fixed", "random", "throughput", "plain"))}
"""Policies that look alike in all pictures."""

OURS = "{} (ours)"
CHARACTERS_PER_INCH, LEGEND_INCHES = 11, 1.9


def numbers(names: Iterable[str], ours: str | None = None) -> dict[str, int]:
    """A number of its own for each name: 0 for ours, that of a known policy, or else the lowest that is free."""
    names = list(dict.fromkeys(names))
    known = KNOWN if ours is None else {name: number for name, number in KNOWN.items() if number} | {ours: 0}
    taken = {name: known[name] for name in names if name in known}
    lowest = 0 if ours is None else 1
    free = (number for number in range(lowest, len(KNOWN) + len(names) + 1) if number not in taken.values())
    return {name: taken[name] if name in taken else next(free) for name in names}


def curve(number: int, num_points: int = 0) -> dict[str, Any]:
    """Returns options of `Axes.plot` for curve `number` of a picture."""
    step = -(-num_points // MAX_MARKS)
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": LINES[number % len(LINES)],
        "marker": MARKERS[number % len(MARKERS)],
        "markersize": 4.0,
        "markevery": (number * step // len(MARKERS), step) if step > 1 else None,
        "linewidth": NARROWEST,
    }


def bar(number: int) -> dict[str, Any]:
    """Returns options of `Axes.bar`; a hatch beside the colour."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "hatch": HATCHES[number % len(HATCHES)],
        "edgecolor": "white",
        "linewidth": 0.0,
    }


def finish(figure: Figure, title: str, ours: str | None = None) -> Figure:
    """Gives a figure its title, a sentence, and its legend below, and marks what is named `ours` in every panel.

    Ours has the heaviest curves, frames around its bars, and a bold name that comes first.
    """
    width = figure.get_figwidth()
    figure.suptitle(textwrap.fill(title, int(CHARACTERS_PER_INCH * width)), fontsize=12)
    named: dict[str, Any] = {}
    for axes in figure.axes:
        for artist, label in zip(*axes.get_legend_handles_labels(), strict=True):
            named.setdefault(label, artist)
            if label == ours:
                _emphasise(artist)
    first = sorted(named, key=lambda label: label != ours)
    labels = [OURS.format(label) if label == ours else label for label in first]
    columns = max(1, min(len(first), int(width / LEGEND_INCHES)))
    legend = figure.legend([named[label] for label in first], labels, loc="outside lower center", ncols=columns)
    ticks = [text for axes in figure.axes for text in (*axes.get_xticklabels(), *legend.get_texts())]
    for text in ticks:
        if ours is not None and text.get_text() in (ours, OURS.format(ours)):
            text.set_fontweight("bold")
    return figure


def _emphasise(artist: Artist | BarContainer | ErrorbarContainer) -> None:
    if isinstance(artist, BarContainer):
        for patch in artist.patches:
            patch.set(edgecolor="black", linewidth=1.6)
    elif isinstance(artist, ErrorbarContainer):
        _emphasise(artist.lines[0])
    elif isinstance(artist, Line2D):
        artist.set(linewidth=1.5 * WIDEST, markersize=9.0, zorder=1.5)  # below the others, to hide none
