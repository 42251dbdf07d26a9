"""Pictures are made of what they are given, name everything in them, and are the same bytes at every run."""

from typing import Any

import pytest

from experiments.harness import plots


def legend(picture):
    return [text.get_text() for text in picture.figure.legends[0].get_texts()]


def a_line():
    return plots.lines(
        "a title",
        "x [s]",
        "y [m]",
        {"one": ([1, 2], [3.0, 4.0])},
        bands={"one": [0.1, 0.1]},
        levels={"wanted": 3.5},
        limits={"full": 2},
        xscale="log",
    )


def test_lines_say_what_they_are():
    picture = a_line()
    (axes,) = picture.figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_xscale()) == ("x [s]", "y [m]", "log")
    assert picture.figure.get_suptitle() == "a title"
    assert legend(picture) == ["one", "wanted: 3.5", "full: 2"]
    assert axes.lines[0].get_ydata().tolist() == [3.0, 4.0]


def test_the_same_picture_is_the_same_bytes():
    assert repr(a_line()) == "Picture(title='a title')"
    first, again = a_line()._repr_png_(), a_line()._repr_png_()
    assert first == again
    assert first.startswith(b"\x89PNG")


def test_stacked_parts_follow_each_other():
    picture = plots.stacked("t", "s", ["a", "b"], {"one": [1, 2], "two": [3, 4], "none": [0, 0]})
    (axes,) = picture.figure.axes
    bars: list[Any] = list(axes.patches)
    assert [(bar.get_x(), bar.get_width()) for bar in bars] == [(0, 1), (0, 2), (1, 3), (2, 4), (4, 0), (6, 0)]
    assert axes.get_xlim() == pytest.approx((0.0, 1.05 * 6))  # the longest is not cut off
