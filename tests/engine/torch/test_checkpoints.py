"""Loading: what a checkpoint tells, and every way in which a name or a folder is wrong."""

import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig

from goodspeed.constraint.compiling import Constraints
from goodspeed.constraint.grammars import compiled_matcher
from goodspeed.constraint.tokens import TokenTable
from goodspeed.engine.paged.chunks import Chunk
from goodspeed.engine.tokenizing import tokenizer_folder
from goodspeed.engine.tokenizing.text import encode_prompt
from goodspeed.engine.torch import checkpoints, loading
from goodspeed.engine.torch.loading import start
from goodspeed.engine.torch.quantized import loading as quantized
from goodspeed.errors import CheckpointError, ConfigError, ConstraintError, PromptError
from goodspeed.wire.generation import Constraint
from tests.engine.conftest import Save, make_tokenizer


def edit(folder: Path, **settings: object) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))
    return folder


def test_what_a_checkpoint_tells(save_checkpoint: Save) -> None:
    folder = save_checkpoint()
    found = checkpoints.load(str(folder))
    assert (found.name, found.vocab_size, found.num_tokens) == (str(folder), 300, 258)
    assert (found.context_len, found.eos_ids) == (512, (256,))
    assert (found.device, found.dtype, found.model.training) == (torch.device("cpu"), torch.float32, False)
    assert not any(weight.requires_grad for weight in found.model.parameters())
    assert found.tokenizer_fingerprint == checkpoints.load_vocabulary(str(folder)).tokenizer_fingerprint


def test_a_gpu_without_memory_for_the_model_is_told(save_checkpoint: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, says = save_checkpoint(), "the GPU has too little free memory for the model; free some, or use a smaller"
    found = loading.load(str(folder))
    full = Mock(side_effect=torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"))
    for holder, name in ((quantized, "load_model"), (torch.nn.Module, "to"), (loading, "try_model")):
        monkeypatch.setattr(holder, name, full)
    with pytest.raises(ConfigError, match=says):
        loading.load(str(folder))
    with pytest.raises(ConfigError, match=says):
        loading.start(found, num_pages=4)
    monkeypatch.setattr(checkpoints, "read_group_size", lambda raw: 128)  # AWQ's weights are filled on the device
    with pytest.raises(ConfigError, match=says):
        loading.load(str(folder))


def test_ends_that_the_tokenizer_lacks_are_left_out(save_checkpoint: Save) -> None:
    """Structured output would refuse the tokenizer."""
    folder = save_checkpoint(eos_token_id=[256, 400, 257])
    for found in (checkpoints.load(str(folder)), tokenizer_folder.load(str(folder))):
        assert found.eos_ids == (256, 257)
        TokenTable.of(found)


def test_a_mask_is_read_from_the_config(save_checkpoint: Save) -> None:
    """Published PARD checkpoints name it, and not how many tokens they draft at once."""
    kinds: tuple[Any, ...] = ({}, {"pard_token": 299}, {"pard_token": 2, "pard_num_tokens": 5})
    ordinary, published, ours = (checkpoints.load(str(save_checkpoint(**settings))) for settings in kinds)
    assert [(each.mask_id, each.num_parallel) for each in (ordinary, published, ours)] == [(None, 1), (299, 8), (2, 5)]
    for each in (published, ours):
        logits = start(each, num_pages=4).forward([Chunk("a", [72, 101], 4, num_masks=2)])
        assert torch.isneginf(logits[:, each.mask_id]).all()
        assert logits[:, 3:258].isfinite().all()


@pytest.mark.parametrize(
    "settings",
    [
        {"attn_implementation": "flash_attention_2"},
        {"_attn_implementation": "flash_attention_2"},
        {"attn_implementation": "somebody/kernel"},
        {"return_dict": False},
    ],
)
def test_settings_of_other_programs_change_nothing(save_checkpoint: Save, settings: dict[str, object]) -> None:
    folders = (edit(save_checkpoint(), **settings), save_checkpoint())
    started = [start(checkpoints.load(str(folder)), num_pages=4) for folder in folders]
    found, expected = (engine.forward([Chunk("a", [72, 101], 2)]) for engine in started)
    assert torch.equal(found, expected)


def test_sixteen_bit_weights_run_in_float32_unless_asked(save_checkpoint: Save) -> None:
    folder = edit(save_checkpoint(), dtype="bfloat16")
    weights = {name: tensor.bfloat16() for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    assert {p.dtype for p in checkpoints.load(str(folder)).model.parameters()} == {torch.float32}
    asked = checkpoints.load(str(folder), dtype="float16")
    assert {p.dtype for p in asked.model.parameters()} == {asked.dtype} == {torch.float16}


@pytest.mark.parametrize(
    "name", ["no-such-model", "./missing/folder", "/nowhere/at/all", "", "a/b/c", "../no-such-folder"]
)
def test_an_unknown_name_says_what_there_is(name: str) -> None:
    with pytest.raises(CheckpointError, match=r"(?s)not found.*tiny-target, tiny-draft-s, tiny-draft-m"):
        checkpoints.load(name)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(CheckpointError, match="is a file"):
        checkpoints.load(str(tmp_path / "file"))


def test_a_weight_of_another_shape(save_checkpoint: Save) -> None:
    folder, name = save_checkpoint(), "model.layers.1.mlp.up_proj.weight"
    weights = load_file(folder / "model.safetensors")
    save_file(weights | {name: weights[name][:3].contiguous()}, folder / "model.safetensors")
    with pytest.raises(CheckpointError):
        checkpoints.load(str(folder))


def padded_tokenizer() -> Any:
    """Returns a tokenizer of 258 tokens and two added ones."""
    tokenizer = make_tokenizer()
    tokenizer.add_special_tokens({"pad_token": "[PAD]"})
    tokenizer.add_tokens(["<image>"])
    return tokenizer


def test_a_model_may_lack_rows_for_added_tokens(save_checkpoint: Save, caplog: pytest.LogCaptureFixture) -> None:
    folder = str(save_checkpoint(vocab_size=258, tokenizer=padded_tokenizer()))
    found = checkpoints.load(folder)
    assert (found.vocab_size, found.num_tokens, found.eos_ids) == (258, 258, (256,))
    assert "no rows for the added tokens from id 258 on" in caplog.text
    assert found.tokenizer_fingerprint == tokenizer_folder.load(folder).tokenizer_fingerprint
    engine = start(found, num_pages=4)
    assert engine.forward([Chunk("a", [72, 101], 1)]).shape == (1, 258)
    with pytest.raises(PromptError, match=r"token 258 \('\[PAD\]'\) is none of the model's, which are 0 to 257"):
        engine.forward([Chunk("a", encode_prompt(found.tokenizer, "a[PAD]"), 1)])
    assert engine.pool.length("a") == 2


def test_a_constraint_forces_no_token_that_the_model_lacks(save_checkpoint: Save) -> None:
    found = checkpoints.load(str(save_checkpoint(vocab_size=258, tokenizer=padded_tokenizer())))
    constraints = Constraints(found)
    constraint = Constraint("choice", '["a[PAD]<image>"]')
    matcher, text = compiled_matcher(constraint, constraints.table), list[int]()
    while not matcher.is_stopped() and (forced := matcher.compute_ff_tokens()):
        assert matcher.consume_tokens(forced)
        text += forced
    assert max(text) < 258
    assert found.tokenizer.decode(text) == "a[PAD]<image>"
    for name in ("<image>", "<[258]>"):
        with pytest.raises(ConstraintError):
            constraints.get(Constraint("grammar", f"start: {name}"))


def test_a_tokenizer_with_more_ids_than_the_model(save_checkpoint: Save) -> None:
    with pytest.raises(CheckpointError, match="has 258 tokens and the model only 256 rows"):
        checkpoints.load(str(save_checkpoint("llama", vocab_size=256, eos_token_id=0)))


@pytest.mark.parametrize("device", ["tpu", "meta", "cuda:99", "cpu:x"])
def test_devices(device: str) -> None:
    with pytest.raises(ConfigError, match=f"device {device!r}"):
        checkpoints.load("tiny-target", device=device)


@pytest.mark.parametrize(("stored", "on_gpu"), [("bfloat16", torch.bfloat16), ("float32", torch.float32)])
def test_the_precision_unless_told_is_the_checkpoints_own_on_a_gpu_only(stored, on_gpu, save_checkpoint):
    config = AutoConfig.from_pretrained(edit(save_checkpoint(), dtype=stored))
    assert checkpoints._dtype("auto", torch.device("cuda"), config) == on_gpu
    assert checkpoints._dtype("auto", torch.device("cpu"), config, is_quantised=True) == torch.float32
    assert checkpoints._dtype("auto", torch.device("cuda"), config, is_quantised=True) == torch.bfloat16
