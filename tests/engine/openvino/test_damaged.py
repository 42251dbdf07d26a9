"""A damaged or foreign file is refused with one line that names it and says what to do."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import pytest
from gguf import GGMLQuantizationType as Kind
from openvino import opset13 as ops

from goodspeed.engine import engines
from goodspeed.engine.model_files.finding import GRAPH, WEIGHTS
from goodspeed.errors import CheckpointError, UnsupportedModelError
from tests.engine import gguf_models
from tests.engine.conftest import Save
from tests.engine.openvino import making


def check_refused(path: Path, told: str, kind: type[CheckpointError] = CheckpointError, dtype: str = "auto") -> None:
    with pytest.raises(kind, match=told) as raised:
        engines.load(str(path), dtype=dtype)
    message = str(raised.value)
    assert type(raised.value) is kind
    assert message.startswith((f"{path}: ", f"--model {path}: "))
    assert "\n" not in message
    assert "; " in message


@pytest.fixture(scope="module")
def whole(save_checkpoint: Save) -> Path:
    return making.folder(save_checkpoint, making.stateful())


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "folder"))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda xml: b"", "it is no XML"),
        (lambda xml: xml[: len(xml) // 2], "openvino_model.xml cannot be read"),
        (lambda xml: xml.replace(b'type="MatMul"', b'type="Nope"'), "type: Nope"),
        (lambda xml: xml.replace(b'offset="', b'offset="999', 3), "openvino_model.xml cannot be read"),
    ],
)
def test_graphs(folder: Path, change: Callable[[bytes], bytes], told: str) -> None:
    (folder / GRAPH).write_bytes(change((folder / GRAPH).read_bytes()))
    check_refused(folder, told)


@pytest.mark.parametrize("share", [0, 0.5])
def test_weights(folder: Path, share: float) -> None:
    weights = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(weights[: int(len(weights) * share)])
    check_refused(folder, "Incorrect weights in bin file")
    (folder / WEIGHTS).unlink()
    check_refused(folder, f"no {WEIGHTS}; get the folder again")


def test_what_lies_beside(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    for missing in ("max_position_embeddings", "model_type"):
        (folder / "config.json").write_text(json.dumps({key: config[key] for key in config.keys() - {missing}}))
        check_refused(folder, missing)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text("{")
    check_refused(folder, "the tokenizer cannot be loaded")


def test_other_models(save_checkpoint: Save) -> None:
    picture = ops.parameter([-1, 3], np.float32, name="picture")
    for model, told in (
        (making.stateful(inputs=("token_type_ids",)), r"its inputs \(.*token_type_ids\) .*optimum-cli"),
        (ov.Model([ops.result(ops.relu(picture))], [picture]), r"its inputs \(.*\) are not those"),
        (making.stateful(has_attention=False), "finds no attention in it"),
    ):
        check_refused(making.folder(save_checkpoint, model), told, UnsupportedModelError)
    check_refused(making.folder(save_checkpoint, making.stateful(vocab_size=200)), "use the tokenizer that belongs to")


def edited(file: Path, change: Callable[[str, Any, Kind], Any], fields: dict[str, Any]) -> Path:
    """Writes Llama in Q4_1 with other weights and fields; None leaves one out."""
    return gguf_models.changed(gguf_models.made("Q4_1"), file, change, fields)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"llama.attention.head_count": 0}, "head_count is 0"),
        ({"llama.attention.head_count_kv": 3}, "4 heads cannot share 3"),
        ({"llama.attention.head_count": 8}, "attn_q.weight has the shape .* instead of"),
        ({"llama.attention.head_count": None}, "head_count is missing"),
        ({"llama.attention.layer_norm_rms_epsilon": None}, "epsilon is missing"),
        ({"llama.embedding_length": 32}, "has the shape .* instead of"),
        ({"llama.feed_forward_length": 96}, "has the shape .* instead of"),
        ({"llama.block_count": 3}, "blk.2.attn_norm.weight is missing"),
        ({"llama.rope.freq_base": 0.0}, "freq_base is 0.0"),
        ({"general.architecture": "qwen2"}, "attn_q.bias is missing"),
        ({"general.architecture": "qwen3"}, "attn_q_norm.weight is missing"),
    ],
)
def test_fields_of_a_gguf_file(tmp_path: Path, fields: dict[str, Any], told: str) -> None:
    check_refused(edited(tmp_path / "it.gguf", lambda _, data, kind: (data, kind), dict(fields)), told)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"general.architecture": "gemma3"}, "'gemma3' is not supported .* use one of llama, qwen2, qwen3"),
        ({"llama.block_count": 1}, "9 weights have no place in the model"),
        ({"llama.rope.dimension_count": 8}, "rotated in part"),
    ],
)
def test_other_families_of_gguf_files(tmp_path: Path, fields: dict[str, Any], told: str) -> None:
    file = edited(tmp_path / "it.gguf", lambda _, data, kind: (data, kind), dict(fields))
    check_refused(file, told, UnsupportedModelError)


def test_weights_of_a_gguf_file(tmp_path: Path) -> None:
    def file(name: str, other: Callable[[Any, Kind], Any]) -> Path:
        return edited(
            tmp_path / "it.gguf", lambda of, data, kind: other(data, kind) if of == name else (data, kind), {}
        )

    check_refused(file("blk.0.ffn_up.weight", lambda *_: None), "blk.0.ffn_up.weight is missing; get the file again")
    for name in ("blk.0.ffn_down.weight", "blk.1.ffn_norm.weight", "output_norm.weight", "token_embd.weight"):
        check_refused(file(name, lambda data, kind: (data[:32], kind)), f"{name} has the shape .* instead of")
    check_refused(file("blk.0.ffn_up.weight", lambda data, kind: (data[None], kind)), "has the shape")
    integers = file("blk.0.ffn_up.weight", lambda *_: (np.zeros((128, 64), np.int8), Kind.I8))
    check_refused(integers, "blk.0.ffn_up.weight is stored as type 24, which is unknown", UnsupportedModelError)
    for dtype in ("auto", "float32"):
        damaged = file("output_norm.weight", lambda data, kind: (data * np.float32(np.nan), kind))
        check_refused(damaged, "logits are no numbers", dtype=dtype)


def test_rows_that_are_no_whole_blocks() -> None:
    file = gguf_models.made("F32", "llama, no whole blocks")
    check_refused(file, "rows of 40 weights are no whole blocks of 32; use --dtype float32", UnsupportedModelError)


def test_a_tokenizer_that_is_not_the_models(tmp_path: Path) -> None:
    tables = ("token_embd.weight", "output.weight")
    file = edited(tmp_path / "it.gguf", lambda of, data, kind: (data[:200] if of in tables else data, kind), {})
    check_refused(file, "its tokenizer has 258 tokens, but the model 200 rows")
