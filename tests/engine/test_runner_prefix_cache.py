"""A runner keeps a part of memory without a session; adopted pages give the logits of prefilled ones."""

from typing import Any

import pytest
import torch

from goodspeed.engine import runner as runner_module
from goodspeed.engine.runner import Chunk, Runner
from tests.micro import VOCAB, make_checkpoint, make_runner

CHECKPOINT = make_checkpoint(1)


@pytest.mark.parametrize(("options", "kept"), [({}, 25), ({"memory_fraction": 0.5}, 100), ({"num_pages": 8}, 8)])
def test_on_a_cpu_where_nobody_said_how_much_there_is_a_part_is_kept(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], kept: int
) -> None:
    monkeypatch.setattr(runner_module, "pages_for", lambda *_: 100)
    assert Runner(CHECKPOINT, prefix_cache=True, **options).pool.max_unused == kept


def test_adopted_pages_give_the_logits_of_the_whole_text() -> None:
    """Also where the session has a page of its own after pages that lie elsewhere, and beside its first owner."""
    text = [(7 * i * i) % VOCAB for i in range(50)]
    runner, plain = make_runner(CHECKPOINT, prefix_cache=True), make_runner(CHECKPOINT)
    runner.forward([Chunk("a", text[:40], 1), Chunk("b", text[:9], 1)])
    runner.pool.publish("a", b"s", text[:40])
    hit = runner.pool.find("c", b"s", text)
    assert hit.num_tokens == 40
    runner.pool.adopt("c", hit)
    found = runner.forward([Chunk("c", text[40:], 10), Chunk("a", [1, 2], 2)])
    expected = plain.forward([Chunk("c", text, 10), Chunk("a", [*text[:40], 1, 2], 2)])
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)
    tokens = [int(runner.forward([Chunk("c", [token], 1)]).argmax()) for token in (3, 4, 5)]
    assert tokens == [int(plain.forward([Chunk("c", [token], 1)]).argmax()) for token in (3, 4, 5)]
