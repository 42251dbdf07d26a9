"""Colours, lines, markers and hatches that are told apart, by colour-blind readers too."""

from itertools import combinations

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from experiments.harness import styles

# Machado, Oliveira and Fernandes 2009, severity 1: what red, green and blue light look like to those who lack a cone.
SIGHT = {
    "all cones": np.eye(3),
    "no red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "no green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "no blue": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = TO_XYZ @ np.ones(3)


def lab(colour, sight):
    """CIE 1976 L*a*b* of a colour as it is seen."""
    shown = np.array(to_rgb(colour))
    light = np.where(shown <= 0.04045, shown / 12.92, ((shown + 0.055) / 1.055) ** 2.4)
    xyz = np.cbrt(np.clip(TO_XYZ @ np.clip(np.array(sight) @ light, 0.0, 1.0) / WHITE, 1e-6, None))
    return np.array([116 * xyz[1] - 16, 500 * (xyz[0] - xyz[1]), 200 * (xyz[1] - xyz[2])])


@pytest.mark.parametrize("sight", SIGHT)
def test_no_two_colours_look_alike(sight):
    """2.3 is just noticeable; two of matplotlib's own ten are 5 apart for those who see no green."""
    found = {colour: lab(colour, SIGHT[sight]) for colour in (*styles.COLOURS, "black", "white")}
    for one, other in combinations(found, 2):
        assert np.linalg.norm(found[one] - found[other]) > 15, (one, other)


def test_twelve_curves_are_told_apart_with_and_without_their_colour():
    curves = [styles.curve(number) for number in range(12)]
    assert len({curve["marker"] for curve in curves}) == 12
    assert len({curve["color"] for curve in curves}) == 12
    assert len({styles.bar(number)["hatch"] for number in range(6)}) == 6


def test_a_policy_looks_the_same_in_every_picture():
    assert styles.numbers(["fixed", "gradient", "fixed"]) == {"fixed": 1, "gradient": 0}
    others = styles.numbers(["gradient", "a", "random", "b", "c", "d", "e"])
    assert (others["gradient"], others["random"]) == (0, 2)
    assert len(set(others.values())) == 7
