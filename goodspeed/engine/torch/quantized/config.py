"""Reads quantization_config of config.json, which must be AWQ's, or refuses it by the setting's name.

An unknown setting may change the meaning of the numbers, so it is refused.
"""

from collections.abc import Mapping
from typing import Any

from goodspeed.errors import UnsupportedModelError

KEY = "quantization_config"


AWQ_KNOWN = frozenset(
    "quant_method modules_to_not_convert bits w_bit group_size q_group_size zero_point version format "
    "checkpoint_format desc_act sym pad_token_id backend disable_exllama do_fuse exllama_config fuse_max_seq_len "
    "max_input_length modules_to_fuse use_cuda_fp16 use_exllama".split()
)
"""Settings of AWQ: either checked here, or without effect (how the checkpoint was made, other programs' kernels)."""


def read_group_size(config: Mapping[str, Any]) -> int | None:
    """Returns how many inputs of a layer share a scale, by config.json; -1: all; None: the weights are plain.

    Raises UnsupportedModelError, naming the setting, unless quantised weights are AutoAWQ's in 4 bits, with zero points
    and in the layout `gemm`.
    """
    inner = config.get("text_config")
    if isinstance(inner, Mapping) and inner.get(KEY) is not None:
        raise _refusal("it is in text_config, but only that of a whole checkpoint is supported")
    settings = config.get(KEY)
    if settings is None or settings == {}:  # some programs write an empty one
        return None
    if not isinstance(settings, Mapping):
        raise _refusal("it is no object")
    if (method := settings.get("quant_method")) != "awq":
        raise _refusal(f"quant_method is {ascii(method)[:80]}, which is not supported")
    if unknown := sorted(ascii(key)[1:-1][:80] for key in set(settings) - AWQ_KNOWN):
        raise _refusal(f"{', '.join(unknown[:4])}: unknown settings of awq")
    _refuse_other(settings, "bits", 4, default=settings.get("w_bit", 4))
    _refuse_other(settings, "zero_point", True, default=True)
    _refuse_other(settings, "desc_act", False, default=False)
    for key in ("version", "format"):
        _refuse_other(settings, key, "gemm", default="gemm")
    size = settings.get("group_size", settings.get("q_group_size", 128))
    if type(size) is not int or (size < 1 and size != -1):
        raise _refusal(f"group_size is {ascii(size)[:80]}, but must be a number of inputs, or -1 for all")
    return size


def _refuse_other(settings: Mapping[str, Any], key: str, wanted: object, default: object) -> None:
    """Refuses every value of a setting but `wanted`, regardless of case."""
    value = settings.get(key, default)
    if isinstance(value, str):
        value = value.lower()
    if value != wanted or type(value) is not type(wanted):
        raise _refusal(f"{key} is {ascii(value)[:80]}, but only {wanted!r} is supported")


def _refusal(what: str) -> UnsupportedModelError:
    return UnsupportedModelError(f"{KEY}: {what}; use the plain checkpoint, or one that docs/MODELS.md lists")
