"""A model split over two real processes computes what the whole one does, whatever happens around it."""

from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from goodspeed.engine.paged.chunks import Chunk, TreePath
from goodspeed.engine.torch import checkpoints
from goodspeed.errors import PromptError, RankLost
from tests.engine.conftest import CONFIGS, Save
from tests.engine.torch.tensor_parallel.worlds import NUM_KNOWN, PAGES, TOLERANCE, World, world


def assert_same_memory(one: World) -> None:
    whole = one.memory_of_whole()
    assert np.abs(whole).max() > 0.1
    for found in one.memories_of_ranks():
        np.testing.assert_allclose(found, whole, rtol=0, atol=TOLERANCE * float(np.abs(whole).max()))


def tiny(save_checkpoint: Save) -> Path:
    return save_checkpoint("llama", num_hidden_layers=1, hidden_size=16, intermediate_size=16, num_key_value_heads=2)


@pytest.mark.parametrize(
    "name", [name if name == "qwen3" else pytest.param(name, marks=pytest.mark.thorough) for name in CONFIGS]
)
def test_two_ranks_equal_one(name: str, save_checkpoint: Save, tmp_path: Path) -> None:
    folder = save_checkpoint(name, num_key_value_heads=2)
    with world(folder, tmp_path / "left.npy") as both:
        assert both.split.checkpoint.model_fingerprint == checkpoints.load(str(folder)).model_fingerprint
        assert both.has_all_heads == (name == "phi3")
        prompt = [(7 * i * i) % NUM_KNOWN for i in range(20)]
        both.forward([Chunk("a", prompt, 20), Chunk("b", prompt[3:9], 1)])
        for token in (5, 6, 7, 8):  # goes on in the same pages
            both.forward([Chunk("a", [token], 1), Chunk("b", [token], 1)])
        both.truncate("a", 9)
        both.forward([Chunk("a", prompt[:3], 3), Chunk("c", prompt[:6], 6, [-1, 0, -1, 2])])
        both.keep([TreePath("c", 2, (2, 3))])
        both.forward([Chunk("c", [1, 2], 2)])
        both.run(40, seed=1)
    assert both.largest_difference < TOLERANCE
    assert_same_memory(both)


@pytest.mark.parametrize(
    "num_rounds", [pytest.param(700, marks=pytest.mark.thorough), pytest.param(10_000, marks=pytest.mark.slow_faults)]
)
def test_after_many_random_rounds_both_hold_the_same(num_rounds: int, save_checkpoint: Save, tmp_path: Path) -> None:
    with world(tiny(save_checkpoint), tmp_path / "left.npy") as both:
        both.run(num_rounds, seed=0)
    assert both.largest_difference < TOLERANCE
    assert min(both.happened.get(what, 0) for what in ("preempted", "tree", "truncated")) >= 5
    assert_same_memory(both)


@pytest.mark.thorough
def test_what_is_refused_before_it_is_told_costs_nothing_and_what_fails_after_ends_all(
    save_checkpoint, tmp_path, monkeypatch
):
    with world(tiny(save_checkpoint), tmp_path / "left.npy") as both:
        with pytest.raises(PromptError):
            both.split.forward([Chunk("a", [NUM_KNOWN], 1)])
        with pytest.raises(ValueError, match="not a tree"):
            both.split.forward([Chunk("a", [1, 2, 3], 3, [1, 0])])
        both.forward([Chunk("a", [1, 2, 3], 3)])
        assert both.largest_difference < TOLERANCE
        fail = Mock(side_effect=RuntimeError("no memory is left\nsecond line"))
        monkeypatch.setattr(type(both.split.memory), "write", fail)
        with pytest.raises(RankLost, match=r"failed \(no memory is left\); restart the verify node"):
            both.split.forward([Chunk("a", [1], 1)])
        with pytest.raises(RankLost):
            both.split.forward([Chunk("a", [1], 1)])
    assert not (tmp_path / "left.npy").exists()
    assert both.split.pool.num_free == PAGES - 1
