"""A small stateful model of one layer in OpenVINO's format, as `optimum-cli export openvino` writes them."""

from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import torch
from numpy.typing import NDArray
from openvino import opset13 as ops
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from goodspeed.engine.model_files.finding import GRAPH
from tests.engine.conftest import Save

VOCAB, HIDDEN, HEADS, HEAD, LONGEST = 258, 64, 2, 32, 512


def weights(seed: int = 0) -> dict[str, NDArray[np.float32]]:
    shapes = {"embedding": (VOCAB, HIDDEN), "positions": (LONGEST, HIDDEN), "head": (VOCAB, HIDDEN)}
    shapes |= dict.fromkeys(("query", "key", "value"), (HEADS * HEAD, HIDDEN))
    rng = np.random.default_rng(seed)
    return {name: rng.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}


def folder(save_checkpoint: Save, model: ov.Model) -> Path:
    """Writes a model beside a tokenizer and a configuration."""
    found = save_checkpoint()
    (found / "model.safetensors").unlink()
    ov.save_model(model, found / GRAPH, compress_to_fp16=False)
    return found


def stateful(
    *, inputs: tuple[str, ...] = (), has_attention: bool = True, vocab_size: int = VOCAB, seed: int = 0
) -> ov.Model:
    """inputs: further ones."""
    held = {name: ops.constant(weight[:vocab_size]) for name, weight in weights(seed).items()}
    names = ("input_ids", "attention_mask", "position_ids", *inputs)
    ids, mask, places, *more = [_named(ops.parameter([-1, -1], np.int64), name) for name in names]
    beams = _named(ops.parameter([-1], np.int32), "beam_idx")
    zero = ops.constant(np.int64(0))
    rows = ops.add(ops.gather(held["embedding"], ids, zero), ops.gather(held["positions"], places, zero))
    for extra in more:
        rows = ops.add(rows, ops.unsqueeze(ops.convert(extra, "f32"), ops.constant(np.int64(2))))
    parts, sinks = list[Any](), list[Any]()
    for which in ("query", "key", "value"):
        split = ops.reshape(ops.matmul(rows, held[which], False, True), np.array([0, 0, HEADS, HEAD]), True)
        part = ops.transpose(split, np.array([0, 2, 1, 3]))
        if which != "query" and has_attention:
            part, sink = _cached(part, which, ids, beams)
            sinks.append(sink)
        parts.append(part)
    seen = parts[2]
    if has_attention:
        hidden = ops.unsqueeze(ops.unsqueeze(ops.convert(mask, "boolean"), np.int64(1)), np.int64(1))
        seen = ops.scaled_dot_product_attention(*parts, hidden)
    joined = ops.reshape(ops.transpose(seen, np.array([0, 2, 1, 3])), np.array([0, 0, HEADS * HEAD]), True)
    logits = ops.matmul(ops.add(rows, joined), held["head"], False, True)
    return ov.Model([ops.result(_named(logits, "logits"))], sinks, [ids, mask, places, beams, *more])


def expected(tokens: list[int]) -> Tensor:
    """Returns the logits [num_tokens, VOCAB]."""
    held = {name: torch.from_numpy(weight) for name, weight in weights().items()}
    rows = held["embedding"][tokens] + held["positions"][: len(tokens)]
    parts = [(rows @ held[name].T).view(len(tokens), HEADS, HEAD) for name in ("query", "key", "value")]
    query, key, value = (part.transpose(0, 1) for part in parts)
    seen = scaled_dot_product_attention(query, key, value, is_causal=True)
    return (rows + seen.transpose(0, 1).reshape(len(tokens), -1)) @ held["head"].T


def _cached(part: Any, name: str, ids: Any, beams: Any) -> tuple[Any, Any]:
    """Returns all keys or values, those of earlier passes included, and what writes them back."""
    batch = ops.gather(ops.shape_of(ids), np.array([0]), np.int64(0))
    shape = ops.concat([batch, ops.constant(np.array([HEADS, 0, HEAD]))], 0)
    empty = ops.broadcast(ops.constant(np.float32(0)), shape)
    past = ops.read_value(empty, name, ov.Type.f32, ov.PartialShape([-1, HEADS, -1, HEAD]))
    whole = ops.concat([ops.gather(past, beams, ops.constant(np.int64(0))), part], 2)
    return whole, ops.assign(whole, name)


def _named(node: Any, name: str) -> Any:
    node.set_friendly_name(name)
    node.output(0).get_tensor().set_names({name})
    return node
