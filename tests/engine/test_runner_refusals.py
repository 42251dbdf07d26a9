"""A pass that fails changes nothing, and memory is counted in pages; `test_any_engine.py` has the other refusals."""

import pytest
import torch

from goodspeed.engine import checkpoints, host_memory
from goodspeed.engine.runner import Chunk, Runner, try_model
from tests.engine.conftest import Save


@pytest.fixture(scope="module")
def runner(save_checkpoint: Save) -> Runner:
    return Runner(checkpoints.load(str(save_checkpoint())), num_pages=100)


def test_a_failing_pass_leaves_the_pool_as_it_was(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    runner.forward([Chunk("kept", [1, 2, 3], 0)])
    free = runner.pool.num_free

    def fail(*args: object, **kwargs: object) -> None:
        raise torch.OutOfMemoryError

    with monkeypatch.context() as patch:
        patch.setattr(try_model(runner.checkpoint, is_split=False)[0], "forward", fail)
        with pytest.raises(torch.OutOfMemoryError):
            runner.forward([Chunk("kept", [4] * 40, 1), Chunk("fresh", [1], 1)])
    assert (runner.pool.length("kept"), runner.pool.num_free, "fresh" in runner.pool) == (3, free, False)


def test_memory_is_given_as_a_fraction(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    page_bytes = 2 * 2 * 32 * 4 * 16  # layers, keys and values, hidden, float32, page_size
    monkeypatch.setattr(host_memory, "total_bytes", lambda: 20 * page_bytes + 10)
    assert Runner(runner.checkpoint, memory_fraction=0.5).pool.num_pages == 10
