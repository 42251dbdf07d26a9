"""Parses quantization_config of config.json into a scheme, or refuses it by the setting's name.

An unknown setting may change the meaning of the numbers, so it is refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from goodspeed.errors import UnsupportedModelError

KEY = "quantization_config"


@dataclass(frozen=True)
class Awq:
    """4 bits, with a zero point and a scale for each group of inputs, in AutoAWQ's layout `gemm`."""

    group_size: int | None  # inputs; None: all inputs of a layer


AWQ_KNOWN = frozenset(
    "quant_method modules_to_not_convert bits w_bit group_size q_group_size zero_point version format "
    "checkpoint_format desc_act sym pad_token_id backend disable_exllama do_fuse exllama_config fuse_max_seq_len "
    "max_input_length modules_to_fuse use_cuda_fp16 use_exllama".split()
)
"""Settings of AWQ: either checked here, or without effect (how the checkpoint was made, other programs' kernels)."""


def read_scheme(config: Mapping[str, Any]) -> Awq | None:
    """Returns the quantisation scheme in a config.json; None for plain weights.

    Raises UnsupportedModelError, naming the setting, for an unsupported scheme.
    """
    inner = config.get("text_config")
    if isinstance(inner, Mapping) and inner.get(KEY) is not None:
        raise _refusal("it is in text_config, but only that of a whole checkpoint is supported")
    settings = config.get(KEY)
    if settings is None or settings == {}:  # some programs write an empty one
        return None
    if not isinstance(settings, Mapping):
        raise _refusal("it is no object")
    if (method := settings.get("quant_method")) == "awq":
        return _awq(settings)
    raise _refusal(f"quant_method is {ascii(method)[:80]}, which is not supported")


def _awq(settings: Mapping[str, Any]) -> Awq:
    _refuse_unknown(settings, AWQ_KNOWN)
    _refuse_other(settings, "bits", 4, default=settings.get("w_bit", 4))
    _refuse_other(settings, "zero_point", True, default=True)
    _refuse_other(settings, "desc_act", False, default=False)
    for key in ("version", "format"):
        _refuse_other(settings, key, "gemm", default="gemm")
    size = settings.get("group_size", settings.get("q_group_size", 128))
    if size != -1 and not _is_positive(size):
        raise _refusal(f"group_size is {ascii(size)[:80]}, but must be a number of inputs, or -1 for all")
    return Awq(None if size == -1 else size)


def _is_positive(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _refuse_unknown(settings: Mapping[str, Any], known: frozenset[str]) -> None:
    if unknown := sorted(ascii(key)[1:-1][:80] for key in set(settings) - known):
        raise _refusal(f"{', '.join(unknown[:4])}: unknown settings of {settings['quant_method']}")


def _refuse_other(settings: Mapping[str, Any], key: str, wanted: object, default: object = None) -> None:
    """Refuses every value of a setting but `wanted`, regardless of case."""
    value = settings.get(key, default)
    if isinstance(value, str):
        value = value.lower()
    if value != wanted or type(value) is not type(wanted):
        raise _refusal(f"{key} is {ascii(value)[:80]}, but only {wanted!r} is supported")


def _refusal(what: str) -> UnsupportedModelError:
    return UnsupportedModelError(f"{KEY}: {what}; use the plain checkpoint, or one that docs/MODELS.md lists")
