"""Worlds in which draft nodes send token trees: the texts are the target's, whatever the trees."""

from dataclasses import replace

import pytest

from experiments.simulation.settings import Faults, Settings
from experiments.simulation.texts.claims import Trees
from goodspeed.fair.round_time import Linear
from goodspeed.wire.messages import Draft
from tests.experiments.simulation.test_ngrams import play

FREE = Linear(fixed_s=0.01)
SENDING = Settings(num_clients=4, num_sessions=3, alpha=(0.6, 0.3), round_cost=FREE, known_cost=True, validate=True)
LOSSY = Faults(lose=0.05, repeat=0.05, jitter_s=0.02, restart_every_s=8.0)


@pytest.mark.thorough
@pytest.mark.parametrize("faults", [Faults(), LOSSY], ids=["calm", "lossy"])
@pytest.mark.parametrize("num_pages", [200, 40], ids=["roomy", "preempting"])
@pytest.mark.parametrize("trees", ["own", "hostile"])
def test_texts_are_the_targets(trees: Trees, num_pages: int, faults: Faults) -> None:
    world, found = play(replace(SENDING, trees=(trees,), num_pages=num_pages, faults=faults))
    assert (found.what, found.num_sessions) == ([], 12)
    assert sum(isinstance(sent, Draft) and sent.parents is not None for sent in world.sent) > 10


def test_alternatives_are_verified_and_accepted() -> None:
    near = replace(SENDING, latency_s=(0.001,), draft_cost=(Linear(fixed_s=0.001),), self_draft=False)
    world, _ = play(replace(near, sizes=lambda client, number: (8, 100), stops=0.0))
    core = world.verify.core
    assert core is not None
    counts = core.counts
    assert counts.num_alternatives > counts.num_alternatives_accepted > 10
    assert 0.1 < counts.num_alternatives_accepted / counts.num_alternatives < 0.5
