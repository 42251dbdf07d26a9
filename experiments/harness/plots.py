"""Pictures for the notebooks: a title that says what is seen, axes with units, reference lines with names.

Every function gives a `Picture`, which a notebook shows as a PNG.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike
from PIL import Image

from experiments.harness import styles

DPI = 75
NUM_COLOURS = 64  # a third of the bytes
SIZE = (9.0, 4.2)
GREY = "0.35"


@dataclass(frozen=True)
class Picture:
    """A figure that shows itself; the same figure is the same bytes at every run."""

    title: str
    figure: Figure = field(repr=False)

    def _repr_png_(self) -> bytes:
        drawn, packed = BytesIO(), BytesIO()
        self.figure.savefig(drawn, format="png", dpi=DPI)
        Image.open(drawn).convert("RGB").quantize(NUM_COLOURS).save(packed, format="png", optimize=True)
        return packed.getvalue()


def lines(
    title: str,
    x_label: str,
    y_label: str,
    curves: Mapping[str, tuple[ArrayLike, ArrayLike]],
    *,
    bands: Mapping[str, ArrayLike] | None = None,
    levels: Mapping[str, float] | None = None,
    limits: Mapping[str, float] | None = None,
    marks: str = "",
    **axes_options: Any,
) -> Picture:
    """curves: name -> x and y; bands: half of the interval around a curve of that name.

    levels and limits: lines across at a height, and upwards at an x, by name. marks: anything but "" marks every point.
    Curves that lie over each other can be seen: each is narrower than those below it.
    """
    picture, axes = _begin(title, x_label, y_label)
    numbers = styles.numbers(curves)
    for place, (name, (x, y)) in enumerate(curves.items()):
        style = styles.curve(numbers[name]) | styles.breadth(place, len(curves))
        style["marker"] = marks and style["marker"]
        (line,) = axes.plot(x, y, label=name, **style)
        if bands and name in bands:
            middle, half = np.asarray(y), np.asarray(bands[name])
            axes.fill_between(x, middle - half, middle + half, alpha=0.25, color=line.get_color(), linewidth=0)
    _draw_levels(axes, levels or {})
    for name, x in (limits or {}).items():
        axes.axvline(x, color="black", linewidth=1, label=f"{name}: {x:.4g}")
    axes.set(**axes_options)
    return _end(picture, axes)


def bars(
    title: str,
    x_label: str,
    y_label: str,
    places: Sequence[str],
    series: Mapping[str, ArrayLike],
    *,
    marks: Mapping[str, ArrayLike] | None = None,
    levels: Mapping[str, float] | None = None,
) -> Picture:
    """series: name -> a bar at every place, side by side; marks: name -> a short line across each place."""
    picture, axes = _begin(title, x_label, y_label)
    at, width = np.arange(len(places)), 0.8 / len(series)
    numbers = styles.numbers(series)
    for number, (name, heights) in enumerate(series.items()):
        places_of = at + (number - (len(series) - 1) / 2) * width
        axes.bar(places_of, np.asarray(heights), width, label=name, **styles.bar(numbers[name]))
    for name, heights in (marks or {}).items():
        axes.hlines(np.asarray(heights), at - 0.45, at + 0.45, colors="black", label=name)
    _draw_levels(axes, levels or {})
    axes.set_xticks(at, places)
    return _end(picture, axes)


def stacked(title: str, x_label: str, places: Sequence[str], parts: Mapping[str, ArrayLike]) -> Picture:
    """parts: name -> a piece of every place's bar, lying, one after the other."""
    picture, axes = _begin(title, x_label, "")
    left = np.zeros(len(places))
    for number, (name, sizes) in enumerate(parts.items()):
        axes.barh(places, np.asarray(sizes), left=left, label=name, **styles.bar(number))
        left = left + np.asarray(sizes)
    axes.set_xlim(0.0, 1.05 * left.max())  # the parts' ends would else be the picture's edge
    axes.invert_yaxis()
    return _end(picture, axes)


def exceeded(title: str, x_label: str, samples: Mapping[str, ArrayLike], **axes_options: Any) -> Picture:
    """name -> values; drawn is which share of them is larger, so a curve to the left is better where less is."""
    picture, axes = _begin(title, x_label, "share that is larger")
    for number, (name, values) in enumerate(samples.items()):
        ordered = np.sort(np.asarray(values, dtype=np.float64))
        larger = 1.0 - np.arange(1, len(ordered) + 1) / len(ordered)
        style = styles.curve(number, len(ordered)) | styles.breadth(number, len(samples)) | {"markersize": 4.0}
        axes.step(ordered, larger, where="post", label=name, **style)
    _draw_levels(axes, {"1 in 20": 0.05})
    axes.set(**axes_options)
    return _end(picture, axes)


def _begin(title: str, x_label: str, y_label: str) -> tuple[Picture, Any]:
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.subplots()
    figure.suptitle(title)
    axes.set(xlabel=x_label, ylabel=y_label)
    return Picture(title, figure), axes


def _draw_levels(axes: Any, levels: Mapping[str, float]) -> None:
    for (name, height), style in zip(levels.items(), _styles(len(levels)), strict=True):
        axes.axhline(height, color=GREY, linestyle=style, linewidth=1, label=f"{name}: {height:.4g}")


def _styles(number: int) -> list[str]:
    return [("--", ":", "-.")[at % 3] for at in range(number)]


def _end(picture: Picture, axes: Any) -> Picture:
    axes.grid(alpha=0.3)
    picture.figure.legend(*axes.get_legend_handles_labels(), loc="outside right center", fontsize="small")
    return picture
