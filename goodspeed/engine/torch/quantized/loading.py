"""Loads a quantised checkpoint as a transformers model: reads weights and dequantises or packs them, one by one.

transformers gets plain tensors, each made on request, so it renames weights and stacks experts as for a plain
checkpoint.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

from goodspeed.engine.torch.quantized.int4_linear import Int4Linear, is_right
from goodspeed.engine.torch.quantized.layers import AwqLayers
from goodspeed.errors import CheckpointError, UnsupportedModelError

logger = logging.getLogger("goodspeed.engine")


def load_model(
    folder: Path, config: Any, group_size: int, device: torch.device, dtype: torch.dtype
) -> tuple[Any, dict[str, Any]]:
    """Returns the model on a CPU (layers of 4 bits: on the device), and transformers' loading report.

    Raises CheckpointError for tensors that do not match each other, or have no place in the model.
    """
    layers = AwqLayers(folder, group_size)
    model_class = _model_class(config)
    with torch.device("meta"):
        outline = model_class(config)
    _refuse_shapes(layers, outline)
    kept = _int4_layers(layers, outline, device) if dtype == torch.bfloat16 else {}
    model, report = _with_int4(model_class, kept).from_pretrained(
        None,
        config=config,
        state_dict=_tensors(layers, kept),
        dtype=dtype,
        local_files_only=True,
        output_loading_info=True,
    )
    model.__class__ = model_class
    _refuse_unplaced(name for name in report["unexpected_keys"] if not _is_zero_bias(name, layers))
    for name, layer in kept.items():
        layer.fill(layers.codes(name), device)
    return model, report


def _model_class(config: Any) -> Any:
    if config.get_text_config(decoder=True) is not config:
        raise UnsupportedModelError("a quantised checkpoint must be a plain language model; use an unquantised one")
    return MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]


def _refuse_shapes(layers: AwqLayers, outline: Any) -> None:
    """Refuses layers of another size than the model's; transformers reports layers that the model lacks."""
    if not layers.names:
        raise CheckpointError("config.json has a quantization_config, but no weight is quantised; correct config.json")
    weights = {name: list(tensor.shape) for name, tensor in outline.state_dict().items()}
    for name in layers.names:
        shape = layers.shape(name)
        found, wanted = [shape.num_outputs, shape.num_inputs], weights.get(f"{name}.weight")
        if wanted not in (None, found):
            what = f"{name}.weight would have shape {found}, but the model needs {wanted}"
            raise CheckpointError(f"{what}; get the checkpoint again")


@dataclass(frozen=True)
class Deferred:
    """A tensor made only when transformers takes all of it, by indexing it like a safetensors slice."""

    make: Callable[[], Tensor]

    def __getitem__(self, index: object) -> Tensor:
        return self.make()


def _tensors(layers: AwqLayers, kept: Iterable[str]) -> dict[str, Deferred]:
    """Returns a plain checkpoint's tensors, each made on request, except for the weights that stay in 4 bits."""
    parts = {part for name in layers.names for part in layers.parts(name)}
    plain = {name: Deferred(partial(layers.read, name)) for name in layers.stored if name not in parts}
    made = {f"{name}.weight": Deferred(partial(layers.weight, name)) for name in layers.names if name not in kept}
    return plain | made


def _int4_layers(layers: AwqLayers, outline: Any, device: torch.device) -> dict[str, Int4Linear]:
    """Returns the layers that stay in 4 bits, still empty; warns about the number of layers dequantised instead."""
    linear = {name for name, module in outline.named_modules() if type(module) is nn.Linear}
    linear -= {name for name, module in outline.named_modules() if module is outline.get_output_embeddings()}
    shapes = {name: layers.shape(name) for name in layers.names if name in linear}
    right = {shape: is_right(shape, device) for shape in set(shapes.values())}
    kept = {name: Int4Linear(shape) for name, shape in shapes.items() if right[shape]}
    if others := [name for name in layers.names if name not in kept]:
        extra = {"layers": len(others), "of": len(layers.names), "first": others[0]}
        logger.warning("some layers have no 4-bit kernel and are dequantised, which takes more memory", extra=extra)
    return kept


def _with_int4(model_class: Any, kept: dict[str, Int4Linear]) -> Any:
    """Returns a model class that replaces layers by `kept` before transformers asks for their weights."""
    if not kept:
        return model_class

    class WithInt4(model_class):  # type: ignore[misc]
        def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
            super().__init__(config, *args, **kwargs)
            for name, layer in kept.items():
                layer.bias = self.get_submodule(name).bias
                self.set_submodule(name, layer)

    WithInt4.__name__ = WithInt4.__qualname__ = model_class.__name__
    return WithInt4


def _refuse_unplaced(names: Iterable[str]) -> None:
    if wrong := sorted(names):
        some = ", ".join(ascii(name)[1:-1][:80] for name in wrong[:4])
        raise CheckpointError(
            f"{len(wrong)} of the tensors have no place in the model ({some}), so its results would be wrong; use a "
            "release of transformers that supports them, or the plain checkpoint"
        )


def _is_zero_bias(name: str, layers: AwqLayers) -> bool:
    """True for a bias of zeros, which some quantisers write for layers without a bias."""
    return name.endswith(".bias") and name in layers.stored and not bool(layers.read(name).any())
