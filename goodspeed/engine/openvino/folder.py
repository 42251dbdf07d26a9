"""Reads a model of OpenVINO's users (`optimum-cli export openvino`), and gives it paged attention and wanted rows."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import openvino as ov
from openvino import opset13 as ops
from openvino._offline_transformations import paged_attention_transformation

from goodspeed.engine.gguf.file import shown
from goodspeed.engine.model_files.checkpoint_folder import read_config
from goodspeed.engine.model_files.config_checks import (
    expected_windows,
    naming,
    refuse_attention,
    refuse_rope,
    rope_types,
)
from goodspeed.engine.openvino.graph import WANTED
from goodspeed.errors import CheckpointError, UnsupportedModelError, first_line

INPUTS = frozenset({"input_ids", "attention_mask", "position_ids", "beam_idx"})
"""Inputs of a language model that can be given paged attention."""

WINDOW = 10
"""Input of OpenVINO's paged attention: the length of a sliding window; 0: there is none."""

BETWEEN = ("Result", "Convert", "Reshape")
"""Operations that may follow the product that makes the logits."""


def read(name: str, file: Path) -> ov.Model:
    """Reads openvino_model.xml and its weights; CheckpointError if they are damaged, UnsupportedModelError for a model
    that has other inputs, or attention that OpenVINO's transformation does not find."""
    try:
        with file.open("rb") as opened:  # OpenVINO tries readers of all its formats, which print what they dislike
            if not opened.read(64).lstrip(b"\xef\xbb\xbf \r\n").startswith(b"<"):
                raise RuntimeError("it is no XML")
        model = ov.Core().read_model(file)
    except (RuntimeError, OSError) as error:
        what = f"{name}: {file.name} cannot be read ({last_line(error)})"
        raise CheckpointError(f"{what}; get the folder again, or update openvino") from error
    inputs = {port.get_any_name() for port in model.inputs}
    if not inputs <= INPUTS or "input_ids" not in inputs:
        listed = ", ".join(map(shown, sorted(inputs)[:6])) or "none"
        what = f"its inputs ({listed}) are not those of a language model with its own cache"
        how = "`optimum-cli export openvino --task text-generation-with-past`"
        raise UnsupportedModelError(f"{name}: {what}; export it with {how}")
    try:
        paged_attention_transformation(model)
    except RuntimeError as error:
        what = f"OpenVINO {ov.get_version()} finds no attention in it that can be paged ({last_line(error)})"
        raise UnsupportedModelError(f"{name}: {what}; use another model") from error
    if not any("_cache." in port.get_any_name() for port in model.inputs):
        raise UnsupportedModelError(f"{name}: it has no attention with a cache; use another model")
    _select_rows(model)
    return model


def context_len(name: str, folder: Path, model: ov.Model) -> int:
    """Returns the longest text of the model, in tokens, by config.json; CheckpointError if it is not there.

    UnsupportedModelError for chunks, and angles that depend on other rows: the trial's short texts do not show them.
    Where the graph lacks a window that config.json has, texts are no longer than the window, which hides nothing then.
    """
    config = read_config(name, folder)
    text = inner if isinstance(inner := config.get("text_config"), dict) else config
    found = text.get("max_position_embeddings")
    if type(found) is not int or found < 1:
        what = f"max_position_embeddings in config.json is {ascii(found)[:40]}, so the model's context is unknown"
        raise CheckpointError(f"{name}: {what}; correct config.json")
    rope = text.get("rope_parameters") or text.get("rope_scaling")
    positions = SimpleNamespace(rope_parameters=rope if isinstance(rope, dict) else {})
    with naming(name):
        refuse_attention(SimpleNamespace(**text), "attention_chunk_size")
        refuse_rope(rope_types(positions))
    if not isinstance(text.get("layer_types") or [], list):
        raise CheckpointError(f"{name}: layer_types in config.json is no list; correct config.json")
    windows = expected_windows(SimpleNamespace(**text | {"num_hidden_layers": 1}))
    return found if _has_windows(model) else min([found, *(each for each in windows if type(each) is int and each > 0)])


def _has_windows(model: ov.Model) -> bool:
    attention = [node for node in model.get_ops() if node.get_type_name() == "PagedAttentionExtension"]
    windows = [node.input_value(WINDOW).get_node() for node in attention]
    return any(node.get_type_name() != "Constant" or node.data.any() for node in windows)


def _select_rows(model: ov.Model) -> None:
    """Has the product that makes the logits computed for wanted rows only; leaves a model of another form as it is."""
    node: Any = model.get_results()[0]
    while node.get_type_name() in BETWEEN:
        node = node.input_value(0).get_node()
    if node.get_type_name() != "MatMul":
        return
    wanted = ops.parameter(ov.PartialShape([-1]), ov.Type.i64)
    wanted.output(0).get_tensor().set_names({WANTED})
    rows = ops.gather(node.input_value(0), wanted, ops.constant(0))
    node.input(0).replace_source_output(rows.output(0))
    model.add_parameters([wanted])
    model.validate_nodes_and_infer_types()


def last_line(error: Exception) -> str:
    """Returns the reason at the end of OpenVINO's message, which begins with places in its sources."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1].rstrip(".") if lines else first_line(error)
