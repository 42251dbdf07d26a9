"""Real chats lose next to nothing by drafts that do not pay, in the simulation of recorded ones."""

from statistics import mean

import pytest

from experiments.simulation import chats
from experiments.simulation.chats import Chats


@pytest.mark.parametrize("drafter", ["ngram", "smollm2-q4_0"])
def test_short_chats_lose_next_to_nothing_by_drafts(drafter: str) -> None:
    """The draft model as slow as the target had 0.94 here without what is learned across chats. A seed alone differs
    from the mean by up to 0.016."""
    ratios = [chats.ratio("", drafter, Chats(1.0, 1, 4, 3), seed=seed) for seed in range(3)]
    assert mean(ratios) >= 0.96
