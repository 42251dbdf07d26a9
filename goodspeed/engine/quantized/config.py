"""Parses quantization_config of config.json into a scheme, or refuses it by the setting's name.

An unknown setting may change the meaning of the numbers, so it is refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from goodspeed.errors import ConfigError, UnsupportedModelError, need

KEY = "quantization_config"


@dataclass(frozen=True)
class Awq:
    """4 bits, with a zero point and a scale for each group of inputs, in AutoAWQ's layout `gemm`."""

    group_size: int | None  # inputs; None: all inputs of a layer


@dataclass(frozen=True)
class Fp8:
    """8-bit floating-point numbers with a scale for each block of a weight."""

    block: tuple[int, int] | None  # outputs, inputs; None: one scale for all


@dataclass(frozen=True)
class CompressedTensors:
    """The format of llm-compressor; transformers dequantises it with the package compressed-tensors."""

    settings: Mapping[str, Any]


Scheme = Awq | Fp8 | CompressedTensors

AWQ_KNOWN = frozenset(
    "quant_method modules_to_not_convert bits w_bit group_size q_group_size zero_point version format "
    "checkpoint_format desc_act sym pad_token_id backend disable_exllama do_fuse exllama_config fuse_max_seq_len "
    "max_input_length modules_to_fuse use_cuda_fp16 use_exllama".split()
)
"""Settings of AWQ: either checked here, or without effect (how the checkpoint was made, other programs' kernels)."""

FP8_KNOWN = frozenset(
    "quant_method modules_to_not_convert activation_scheme weight_block_size dequantize fmt scale_fmt expert_dtype "
    "modules_to_convert ignored_layers".split()
)

OTHERS = {
    "auto-round": "the layout depends on a backend that it names",
    "bitsandbytes": "only the package bitsandbytes can read it",
    "fbgemm_fp8": "it has another layout than fp8",
    "gguf": "GGUF files are not safetensors",
    "gptq": "take the AWQ checkpoint of the same model",
    "hqq": "only the package hqq can read it",
    "mxfp4": "its experts are stored in a layout of their own",
    "torchao": "it stores pickled tensors, or needs torchao's own classes",
}
"""Known quantisation methods that are not supported, with the reason."""


def read_scheme(config: Mapping[str, Any]) -> Scheme | None:
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
    match method := settings.get("quant_method"):
        case "awq":
            return _awq(settings)
        case "fp8":
            return _fp8(settings)
        case "compressed-tensors":
            return _compressed_tensors(settings)
    why = OTHERS.get(method, "it is unknown") if isinstance(method, str) else "it names no method"
    raise _refusal(f"quant_method is {ascii(method)[:80]}, which is not supported ({why})")


def dequantising(scheme: CompressedTensors) -> dict[str, Any]:
    """Returns the settings with which transformers dequantises such a checkpoint as it loads.

    Raises NotInstalled without compressed-tensors, and ConfigError if transformers is too old.
    """
    what = "a checkpoint of compressed-tensors"
    need(what, "compressed-tensors", "compressed-tensors")
    from transformers.utils import check_min_version

    try:
        check_min_version("5.23.0")  # older ones quantise activations of such a model, too
    except ImportError as error:
        raise ConfigError(f"{what} needs a newer transformers; install 5.23 or later") from error
    return {**scheme.settings, "dequantize": True}


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


def _fp8(settings: Mapping[str, Any]) -> Fp8:
    _refuse_unknown(settings, FP8_KNOWN)
    _refuse_other(settings, "fmt", "e4m3", default="e4m3")
    _refuse_other(settings, "scale_fmt", "float", default="float")
    _refuse_other(settings, "expert_dtype", "fp8", default="fp8")
    if settings.get("modules_to_convert"):
        raise _refusal("modules_to_convert quantises more than linear layers, which is not supported")
    block = settings.get("weight_block_size", (128, 128))
    if block is None:
        return Fp8(None)
    if not isinstance(block, list | tuple) or len(block) != 2 or not all(_is_positive(size) for size in block):
        raise _refusal(f"weight_block_size is {ascii(block)[:80]}, but must be two numbers, or null")
    return Fp8((block[0], block[1]))


def _compressed_tensors(settings: Mapping[str, Any]) -> CompressedTensors:
    if settings.get("kv_cache_scheme"):
        raise _refusal("kv_cache_scheme requests quantised keys and values, which are not supported")
    if settings.get("transform_config"):
        raise _refusal("transform_config requests rotations between layers, which are not supported")
    groups = settings.get("config_groups")
    if not isinstance(groups, Mapping) or len(groups) != 1:
        raise _refusal("config_groups must be one way of quantising, since transformers applies one to all layers")
    if sparsity := settings.get("sparsity_config"):
        layout = sparsity.get("format") if isinstance(sparsity, Mapping) else sparsity
        if layout != "dense":
            raise _refusal(f"sparsity_config has the format {ascii(layout)[:80]}, but only dense weights are supported")
    return CompressedTensors(settings)


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
