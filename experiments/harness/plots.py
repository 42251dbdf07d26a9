"""Pictures for the notebooks: a title that says what is seen, axes with units, reference lines with names.

Every function gives a `Picture`, which a notebook shows as a PNG.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

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
    levels: Mapping[str, float] | None = None,
    limits: Mapping[str, float] | None = None,
    marks: str = "",
    **axes_options: Any,
) -> Picture:
    """curves: name -> x and y.

    levels and limits: lines across at a height, and upwards at an x, by name. marks: anything but "" marks every point.
    Curves that lie over each other can be seen: each is narrower than those below it.
    """
    picture, axes = _begin(title, x_label, y_label)
    numbers = styles.numbers(curves)
    for place, (name, (x, y)) in enumerate(curves.items()):
        style = styles.curve(numbers[name]) | styles.breadth(place, len(curves))
        style["marker"] = marks and style["marker"]
        axes.plot(x, y, label=name, **style)
    _draw_levels(axes, levels or {})
    for name, x in (limits or {}).items():
        axes.axvline(x, color="black", linewidth=1, label=f"{name}: {x:.4g}")
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
