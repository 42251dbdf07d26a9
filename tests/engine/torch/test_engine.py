"""The torch engine survives a failing pass, and keeps its memory. `any_engine.py` has what holds for every engine."""

from unittest.mock import Mock

import pytest
import torch

from goodspeed.engine.paged import cache_size
from goodspeed.engine.paged.chunks import Chunk
from goodspeed.engine.torch import checkpoints
from goodspeed.engine.torch.loading import start, try_model
from tests.engine.conftest import Save
from tests.micro import make_checkpoint


def test_a_failing_pass_leaves_the_pool_as_it_was(save_checkpoint: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = start(checkpoints.load(str(save_checkpoint())), num_pages=100)
    engine.forward([Chunk("kept", [1, 2, 3], 0)])
    free = engine.pool.num_free
    with monkeypatch.context() as patch:
        fail = Mock(side_effect=torch.OutOfMemoryError)
        patch.setattr(try_model(engine.checkpoint, is_split=False)[0], "forward", fail)
        with pytest.raises(torch.OutOfMemoryError):
            engine.forward([Chunk("kept", [4] * 40, 1), Chunk("fresh", [1], 1)])
    assert (engine.pool.length("kept"), engine.pool.num_free, "fresh" in engine.pool) == (3, free, False)


@pytest.mark.parametrize(("options", "kept"), [({}, 25), ({"memory_fraction": 0.5}, 100), ({"num_pages": 8}, 8)])
def test_on_a_cpu_where_nobody_said_how_much_there_is_a_part_is_kept_without_a_session(monkeypatch, options, kept):
    monkeypatch.setattr(cache_size, "pages_for", lambda *_: 100)
    assert start(make_checkpoint(1), prefix_cache=True, **options).pool.max_unused == kept
