"""Padded copies in the user's cache."""

import shutil
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from experiments.benchmarks import padded
from goodspeed.embedded import models
from goodspeed.errors import ConfigError


def test_a_copy_computes_the_same(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"hidden_size": 32, "num_attention_heads": 4, "head_dim": 8, "intermediate_size": 40}
    sizes |= {"num_key_value_heads": 2, "num_hidden_layers": 2, "vocab_size": 64, "rms_norm_eps": 0.3}
    original = LlamaForCausalLM(LlamaConfig(**sizes, tie_word_embeddings=True))
    for name, weight in original.named_parameters():
        torch.nn.init.normal_(weight, mean=float("norm" in name), std=0.2)
    original.save_pretrained(tmp_path / "source")
    padded.pad(tmp_path / "source", padded.Shape(96, 100, 4, queries=96, keys=48), tmp_path / "padded")
    copy = AutoModelForCausalLM.from_pretrained(tmp_path / "padded", dtype=torch.float32)
    assert (copy.config.num_hidden_layers, copy.config.hidden_size) == (4, 96)
    prompt = torch.randint(0, 64, (1, 40))
    with torch.no_grad():
        torch.testing.assert_close(copy(prompt).logits, original(prompt).logits, atol=1e-4, rtol=1e-4)


def test_a_copy_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(padded.SHAPES, "116m", padded.Shape(160, 400, 6, 160, 160))
    told: list[str] = []
    first, again = (padded.in_cache("tiny-draft-s", say=lambda text, *values: told.append(text)) for _ in range(2))
    assert first.parents[2] == tmp_path
    assert (first.name, again) == ("tiny-draft-s-116m", first)
    assert [text for text in told if "padding" in text] == told[:1]
    monkeypatch.setattr(padded, "VERSION", padded.VERSION + 1)
    assert padded.in_cache("tiny-draft-s") != first


def test_the_cache_s_copy_is_made_anew_when_a_file_beside_the_weights_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(padded.SHAPES, "116m", padded.Shape(160, 400, 3, 160, 160))
    model = shutil.copytree(models.path("tiny-draft-s"), tmp_path / "model")
    for name in ("chat_template.jinja", "tokenizer.model", "merges.txt"):
        before = padded.in_cache(str(model))
        (model / name).write_text("other")
        assert (padded.in_cache(str(model)) / name).read_text() == "other"
        assert not (before / name).exists()


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in (tmp_path / "file", tmp_path / ("n" * 300)):
        monkeypatch.setenv("XDG_CACHE_HOME", str(place))
        (tmp_path / "file").touch()
        with pytest.raises(ConfigError, match=f"{place}/.* cannot be written: .*; choose another place"):
            padded.in_cache("tiny-draft-s")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", Mock(side_effect=RuntimeError))
    with pytest.raises(ConfigError, match="no home folder for the cache; set XDG_CACHE_HOME"):
        padded.in_cache("tiny-draft-s")
