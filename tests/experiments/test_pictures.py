"""The experiments' pictures can be drawn from the committed results, and mark what is ours."""

from importlib import import_module  # noqa: TID251 names of files of ours

import pytest

from experiments.__main__ import experiments
from experiments.harness import styles
from experiments.harness.experiment import HERE, load, new_figure, stored


@pytest.mark.parametrize("name", experiments())
def test_a_picture_is_drawn_from_what_is_stored(name):
    module = import_module(f"experiments.{name}")
    settings = load(HERE / "configs" / f"{name}.toml", "full", module.Config)
    figure = module.draw(settings, stored(HERE / "results" / name))
    assert len(figure.get_suptitle().split()) >= 8, "a sentence"
    assert len(figure.legends[0].get_texts()) <= 8


def test_ours_has_the_heaviest_curve_and_framed_bars():
    figure = new_figure()
    above, below = figure.subplots(2, 1)
    for number, policy in enumerate(("gradient", "fixed")):
        above.plot([1, 2], label=policy, **styles.curve(number))
        below.bar([number], [1.0], label=policy, **styles.bar(number))
    styles.finish(figure, "Ours is above what it is compared with here", "fixed")
    assert above.lines[1].get_linewidth() > 2 * above.lines[0].get_linewidth()
    assert [bar.get_edgecolor()[:3] for bar in below.patches] == [(1.0, 1.0, 1.0), (0.0, 0.0, 0.0)]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["fixed (ours)", "gradient"]
