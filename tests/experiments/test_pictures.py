"""The experiments' pictures can be drawn from the committed results, and mark what is ours."""

from importlib import import_module  # noqa: TID251 names of files of ours

import pytest

from experiments.__main__ import experiments
from experiments.harness.experiment import HERE, load, stored


@pytest.mark.parametrize("name", experiments())
def test_a_picture_is_drawn_from_what_is_stored(name):
    module = import_module(f"experiments.{name}")
    settings = load(HERE / "configs" / f"{name}.toml", "full", module.Config)
    figure = module.draw(settings, stored(HERE / "results" / name))
    assert len(figure.get_suptitle().split()) >= 8, "a sentence"
    assert len(figure.legends[0].get_texts()) <= 8
