"""Traces of array worlds are what happened in them."""

import numpy as np

from experiments.simulation.arrays import rows
from experiments.simulation.arrays.probabilities import IndependentDraws
from experiments.simulation.arrays.traces import trace
from experiments.simulation.arrays.worlds import ArraySettings, Worlds


def worlds():
    return Worlds(ArraySettings(3, 6, num_worlds=2), rows.create("fixed", 2), IndependentDraws([1.0, 0.0, 0.5], [0, 1]))


def test_by_hand():
    """Two tokens each: all accepted, none accepted."""
    seen = trace(worlds(), 4)
    assert seen.tokens.shape == (4, 2, 3)
    assert (seen.lengths == 2).all()
    assert (seen.tokens[:, :, 0] == 3).all()
    assert (seen.tokens[:, :, 1] == 1).all()
    assert (seen.running_goodput[:, :, 0] == 3.0).all()
    assert np.array_equal(seen.running_goodput[3], seen.tokens.mean(axis=0))


def test_is_the_world_itself():
    world, same = worlds(), worlds()
    seen = trace(world, 5)
    later = trace(world, 2)
    same.run(8)
    assert np.array_equal(later.acceptance[-1], same.acceptance)
    assert np.array_equal(later.goodput[-1], same.goodput)
    assert np.array_equal(1 + seen.tokens.sum(axis=0) + later.tokens.sum(axis=0), same.num_tokens)
