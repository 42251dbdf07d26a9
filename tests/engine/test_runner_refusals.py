"""A runner refuses impossible calls, and a refusal changes nothing."""

import pytest
import torch

from goodspeed.engine import checkpoints, host_memory
from goodspeed.engine.runner import Chunk, Runner, try_model
from goodspeed.errors import ConfigError, PromptError
from tests.engine.conftest import Save


@pytest.fixture(scope="module")
def runner(save_checkpoint: Save) -> Runner:
    return Runner(checkpoints.load(str(save_checkpoint())), num_pages=100)


@pytest.mark.parametrize("token", [-1, 258, 299, 300])
def test_an_id_that_is_not_the_tokenizers(runner: Runner, token: int) -> None:
    with pytest.raises(PromptError, match="0 to 257"):
        runner.forward([Chunk("new", [5], 1), Chunk("other", [1, token], 1)])
    assert "new" not in runner.pool


def test_a_session_that_outgrows_the_context(runner: Runner) -> None:
    runner.forward([Chunk("long", [7] * 512, 0)])
    with pytest.raises(PromptError, match="513 tokens do not fit"):
        runner.forward([Chunk("long", [7], 1)])
    assert runner.pool.length("long") == 512


@pytest.mark.parametrize("chunk", [Chunk("x", [], 0), Chunk("x", [1], 2), Chunk("x", [1], -1)])
def test_a_chunk_that_makes_no_sense_is_a_bug(runner: Runner, chunk: Chunk) -> None:
    with pytest.raises(ValueError, match="not possible"):
        runner.forward([chunk])


def test_a_session_twice_in_a_batch_is_a_bug(runner: Runner) -> None:
    with pytest.raises(ValueError, match="once"):
        runner.forward([Chunk("x", [1], 0), Chunk("x", [2], 1)])
    with pytest.raises(ValueError, match="needs sessions"):
        runner.forward([])


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
    assert Runner(runner.checkpoint, memory_fraction=1e-3).pool.num_pages > 10
    monkeypatch.setattr(host_memory, "total_bytes", lambda: 20 * page_bytes + 10)
    assert Runner(runner.checkpoint, memory_fraction=0.5).pool.num_pages == 10
    with pytest.raises(ConfigError, match="hold no page"):
        Runner(runner.checkpoint, memory_fraction=0.04)
    with pytest.raises(ConfigError, match="fraction"):
        Runner(runner.checkpoint, memory_fraction=1.5)
    with pytest.raises(ConfigError, match="cannot be allocated"):
        Runner(runner.checkpoint, num_pages=1 << 40)
