"""The experiments' pictures, drawn from the committed results: nothing is cut off, covered, unexplained or alike."""

import shutil

import pytest
from matplotlib.colors import to_rgb

from experiments import (
    adaserve,
    adaspec,
    domain_shift,
    fig2_estimation,
    fig3_time,
    fig4_convergence,
    fleet,
    laps_sd,
    never_worse,
    scale,
    slos_serve,
    stragglers,
    table1,
    theorem1,
)
from experiments.__main__ import experiments
from experiments.harness import FIGURE, HERE, load, stored
from experiments.simulation import plots

MODULES = {
    module.__name__.rpartition(".")[2]: module
    for module in (
        adaserve,
        adaspec,
        domain_shift,
        fig2_estimation,
        fig3_time,
        fig4_convergence,
        fleet,
        laps_sd,
        never_worse,
        scale,
        slos_serve,
        stragglers,
        table1,
        theorem1,
    )
}


def test_all_experiments_are_looked_at():
    assert list(MODULES) == experiments()


def drawn(name):
    module = MODULES[name]
    return module.draw(load(HERE / "configs" / f"{name}.toml", "full", module.Config), stored(HERE / "results" / name))


@pytest.mark.thorough
@pytest.mark.parametrize("name", MODULES)
def test_the_picture_can_be_drawn_from_what_is_committed(name, tmp_path, monkeypatch, capsys):
    shutil.copytree(HERE / "results" / name, tmp_path / name)
    (tmp_path / name / FIGURE).unlink()
    monkeypatch.setattr("sys.argv", [name, "--redraw", f"--out={tmp_path / name}"])
    assert MODULES[name].main() == 0
    assert capsys.readouterr().out == f"{tmp_path / name / FIGURE}\n"
    assert (tmp_path / name / FIGURE).read_bytes().startswith(b"\x89PNG")


def measured(axes):
    """The curves of a panel; what is only compared with is black."""
    return [line for line in axes.lines if to_rgb(line.get_color()) != (0.0, 0.0, 0.0)]


@pytest.mark.parametrize("name", MODULES)
def test_every_curve_of_a_panel_has_a_look_of_its_own(name):
    for axes in drawn(name).axes:
        looks = [(line.get_color(), line.get_marker()) for line in measured(axes) if not is_part_of_error_bar(line)]
        assert len(set(looks)) == len(looks)


def is_part_of_error_bar(line):
    return line.get_marker() in ("_", "|")


@pytest.mark.parametrize("name", MODULES)
def test_no_legend_lies_over_a_panel(name):
    assert [axes for axes in drawn(name).axes if axes.get_legend() is not None] == []


def test_domain_shift_shows_all_its_variants():
    figure = drawn("domain_shift")
    for axes in figure.axes:
        curves = measured(axes)
        assert len({line.get_color() for line in curves}) == len(curves) == 11
        assert all(len(line.get_xdata()) == 900 for line in curves)
    assert len(figure.legends[0].get_texts()) == 12  # and x*


def test_fig3_leaves_room_above_the_highest_bar():
    for axes in drawn("fig3_time").axes:
        highest = max(bar.get_y() + bar.get_height() for bar in axes.patches)
        assert axes.get_ylim()[1] > 1.05 * highest


def test_fig4_explains_every_line():
    figure = drawn("fig4_convergence")
    explained = {text.get_text() for text in figure.legends[0].get_texts()}
    labels = {line.get_label() for axes in figure.axes for line in axes.lines}
    assert labels == explained
    assert "U(x*) where drafts began (replay)" in explained


def test_never_worse_can_be_read_and_tells_low_cells_apart():
    figure = drawn("never_worse")
    colours = {}
    for axes in figure.axes[:-1]:  # the last is the scale
        (image,) = axes.images
        for text in axes.texts:
            x, y = text.get_position()
            colour = image.cmap(image.norm(image.get_array()[int(y), int(x)]))
            assert abs(luminance(colour) - luminance((*to_rgb(text.get_color()), 1.0))) > 0.15
            colours[text.get_text()] = colour
    low = [ratio for ratio in colours if float(ratio) < 0.9]
    assert len({colours[ratio] for ratio in low}) == len(low) >= 4


def luminance(colour):
    return sum(share * c**2.2 for share, c in zip((0.2126, 0.7152, 0.0722), colour, strict=False))


def test_equal_curves_can_both_be_seen():
    picture = plots.lines("t", "x", "y", {name: ([1, 2], [3.0, 4.0]) for name in ("a", "b", "c")}, marks="o")
    lines = picture.figure.axes[0].lines
    looks = [[line.get_linewidth() for line in lines], [line.get_markersize() for line in lines]]
    assert looks == [sorted(look, reverse=True) for look in looks]
    assert looks[0][0] > 2 * looks[0][-1]
