"""Logits of paged sessions equal the unmodified model's, whatever happens around them."""

from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from goodspeed.engine import checkpoints
from goodspeed.engine import runner as runner_module
from goodspeed.engine.runner import Chunk, Runner, try_model
from tests.engine.conftest import Save
from tests.micro import make_checkpoint


@pytest.fixture(scope="module")
def reference(architecture: Path) -> "Reference":
    return Reference(architecture)


class Reference:
    """The same checkpoint, as transformers runs it: whole sequences, no cache."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    @torch.inference_mode()
    def logits(self, tokens: list[int], num_logits: int) -> Tensor:
        logits: Tensor = self.model(torch.tensor([tokens]), use_cache=False).logits
        return logits[0, len(tokens) - num_logits :]

    def runner(self, **options: Any) -> Runner:
        return Runner(checkpoints.load(str(self.folder)), **options)


def known(logits: Tensor) -> Tensor:
    """Columns of the tokenizer; the byte tokenizer has 258 ids."""
    return logits[:, :258]


@pytest.mark.parametrize("sizes", [[5, 1, 6], [1] * 40], ids=["pieces", "token by token"])
def test_one_session_in_pieces_beyond_its_window(reference: Reference, sizes: list[int]) -> None:
    runner, tokens = reference.runner(num_pages=4, page_size=16), [(7 * i * i) % 250 for i in range(sum(sizes))]
    ends = list(accumulate(sizes))
    found = torch.cat(
        [runner.forward([Chunk("a", tokens[end - n : end], n)]) for n, end in zip(sizes, ends, strict=True)]
    )
    torch.testing.assert_close(known(found), known(reference.logits(tokens, len(tokens))), atol=1e-4, rtol=0)
    assert torch.isneginf(found[:, 258:]).all()


def test_a_failing_pass_leaves_the_pool_as_it_was(save_checkpoint: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = Runner(checkpoints.load(str(save_checkpoint())), num_pages=100)
    runner.forward([Chunk("kept", [1, 2, 3], 0)])
    free = runner.pool.num_free

    def fail(*args: object, **kwargs: object) -> None:
        raise torch.OutOfMemoryError

    with monkeypatch.context() as patch:
        patch.setattr(try_model(runner.checkpoint, is_split=False)[0], "forward", fail)
        with pytest.raises(torch.OutOfMemoryError):
            runner.forward([Chunk("kept", [4] * 40, 1), Chunk("fresh", [1], 1)])
    assert (runner.pool.length("kept"), runner.pool.num_free, "fresh" in runner.pool) == (3, free, False)


@pytest.mark.parametrize(("options", "kept"), [({}, 25), ({"memory_fraction": 0.5}, 100), ({"num_pages": 8}, 8)])
def test_on_a_cpu_where_nobody_said_how_much_there_is_a_part_is_kept_without_a_session(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], kept: int
) -> None:
    monkeypatch.setattr(runner_module, "pages_for", lambda *_: 100)
    assert Runner(make_checkpoint(1), prefix_cache=True, **options).pool.max_unused == kept
