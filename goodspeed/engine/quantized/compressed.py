"""How transformers is told to dequantise a checkpoint of compressed-tensors. Knows nothing about tensors."""

from importlib.util import find_spec
from inspect import signature
from typing import Any

from goodspeed.engine.quantized.config import CompressedTensors
from goodspeed.errors import ConfigError, NotInstalled

ACTIVATIONS = (".input_scale", ".input_zero_point", ".input_global_scale")
"""Endings of tensors for quantising activations, which is not done here."""


def dequantising(scheme: CompressedTensors) -> dict[str, Any]:
    """Returns the settings with which transformers makes plain weights of such a checkpoint as it loads them.

    Raises ConfigError where compressed-tensors is not installed, or transformers is too old.
    """
    what = "a checkpoint of compressed-tensors"
    if find_spec("compressed_tensors") is None:
        raise NotInstalled(what, "compressed-tensors", "compressed-tensors")
    from transformers import CompressedTensorsConfig

    if "dequantize" not in signature(CompressedTensorsConfig.__init__).parameters:
        raise ConfigError(f"{what} needs a newer transformers; install 5.23 or later")
    return {**scheme.settings, "dequantize": True}
