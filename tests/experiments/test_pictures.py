"""The experiments' pictures, drawn from the committed results: nothing is cut off, covered, unexplained or alike."""

from importlib import import_module

import pytest
from matplotlib.colors import to_rgb

from experiments.__main__ import experiments
from experiments.harness import styles
from experiments.harness.experiment import HERE, load, new_figure, stored

MODULES = {name: import_module(f"experiments.{name}") for name in experiments()}


def drawn(name):
    module = MODULES[name]
    return module.draw(load(HERE / "configs" / f"{name}.toml", "full", module.Config), stored(HERE / "results" / name))


def measured(axes):
    """The curves of a panel; what is only compared with is black."""
    return [line for line in axes.lines if to_rgb(line.get_color()) != (0.0, 0.0, 0.0)]


def is_part_of_error_bar(line):
    return line.get_marker() in ("_", "|")


COMPARES_NOTHING = {"fig2_estimation", "theorem1", "never_worse"}
"""Experiments whose pictures have no other policy beside ours."""


@pytest.mark.parametrize("name", MODULES)
def test_a_picture_says_one_thing_with_curves_that_are_told_apart(name):
    figure = drawn(name)
    for axes in figure.axes:
        looks = [(line.get_color(), line.get_marker()) for line in measured(axes) if not is_part_of_error_bar(line)]
        assert len(set(looks)) == len(looks)
        assert axes.get_legend() is None, "it would lie over the panel"
    assert len(figure.get_suptitle().split()) >= 8
    assert len(figure.axes) <= 4
    legend = figure.legends[0].get_texts()
    assert len(legend) <= 8
    ticks = [text for axes in figure.axes for text in axes.get_xticklabels()]
    bold = [text.get_text() for text in (*legend, *ticks) if text.get_fontweight() == "bold"]
    assert bool(bold) == (name not in COMPARES_NOTHING)
    assert all(text.endswith(" (ours)") for text in bold)


def test_ours_has_the_heaviest_curve_and_framed_bars():
    figure = new_figure()
    above, below = figure.subplots(2, 1)
    for number, policy in enumerate(("gradient", "fixed")):
        above.plot([1, 2], label=policy, **styles.curve(number))
        below.bar([number], [1.0], label=policy, **styles.bar(number))
    styles.finish(figure, "Ours is above what it is compared with here", "fixed")
    ours, other = above.lines[1], above.lines[0]
    assert ours.get_linewidth() > 2 * other.get_linewidth()
    assert ours.get_zorder() < other.get_zorder()  # or it would hide the other
    assert [bar.get_edgecolor()[:3] for bar in below.patches] == [(1.0, 1.0, 1.0), (0.0, 0.0, 0.0)]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["fixed (ours)", "gradient"]
