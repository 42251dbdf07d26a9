"""`goodspeed-verify --draft-model`: what is refused before anything is served, and how memory is shared."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from goodspeed.engine import engines
from goodspeed.engine.torch.loading import start
from goodspeed.errors import ConfigError
from tests import gguf_files
from tests.micro import make_checkpoint
from verify_node.config import VerifyConfig
from verify_node.process import assembly


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"preset": "paper"}, "--draft-model needs rounds that do not wait"),
        ({"tp": 2}, "--draft-model is not split as --tp 2 splits the target"),
    ],
)
def test_what_it_does_not_go_with(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        VerifyConfig(model="tiny-target", draft_model="tiny-draft-s", **changes)


def test_a_draft_model_with_another_tokenizer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    target = make_checkpoint()
    monkeypatch.setattr(engines, "load", lambda name, **options: replace(target, tokenizer_fingerprint="other"))
    with pytest.raises(ConfigError, match="--draft-model d has another tokenizer than the target t; choose"):
        assembly.load_draft_model(VerifyConfig(model="t", draft_model="d"), target)


@pytest.mark.parametrize(("own", "targets", "shared"), [(60, 64, 60), (64, 60, 60)])
def test_a_draft_model_draws_only_what_both_models_have_rows_for(own, targets, shared, monkeypatch):
    monkeypatch.setattr(engines, "load", lambda name, **options: make_checkpoint(num_tokens=own))
    config = VerifyConfig(model="t", draft_model="d")
    assert assembly.load_draft_model(config, make_checkpoint(num_tokens=targets)).num_tokens == shared


def test_both_models_share_the_memory() -> None:
    target, draft = make_checkpoint(1), make_checkpoint(2)
    alone = start(target, memory_fraction=1e-3).pool.num_pages
    config = VerifyConfig(model="t", draft_model="d", memory_fraction=1e-3)
    assert assembly.make_engine(config, target, draft=draft).pool.num_pages == alone // 2


@pytest.mark.parametrize("is_swapped", [False, True])
def test_torch_has_its_threads_whichever_of_both_models_it_computes(is_swapped: bool) -> None:
    models = "tiny-draft-s", gguf_files.made("tiny-draft-s")
    target, draft = reversed(models) if is_swapped else models
    before = torch.get_num_threads()
    try:
        assembly.load_engines(VerifyConfig(model=target, draft_model=draft, threads=2), None)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
