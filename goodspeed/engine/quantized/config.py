"""What quantization_config in config.json says, as a scheme that is read here, or a refusal that names the setting.

Knows nothing about tensors. A setting that is not known might change what the numbers mean, so it is refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from goodspeed.errors import UnsupportedModelError

KEY = "quantization_config"


@dataclass(frozen=True)
class Awq:
    """4 bits, with a zero and a scale for each group of inputs, in the layout that AutoAWQ calls gemm."""

    group_size: int | None  # inputs; None: all of a layer's


@dataclass(frozen=True)
class Gptq:
    """4 bits, with a zero and a scale for each group of inputs, in AutoGPTQ's layout."""

    group_size: int | None  # inputs; None: all of a layer's
    zeros_less_one: bool  # stored zeros are one less than meant (the older of two formats)


@dataclass(frozen=True)
class Fp8:
    """8-bit floating-point numbers with a scale for each block of a weight."""

    block: tuple[int, int] | None  # outputs, inputs; None: one scale for all


@dataclass(frozen=True)
class CompressedTensors:
    """What llm-compressor writes; transformers dequantises it with the package compressed-tensors."""

    settings: Mapping[str, Any]


Scheme = Awq | Gptq | Fp8 | CompressedTensors

MAKING = frozenset(
    "act_group_aware batch_size block_name_to_quantize cache_block_outputs damp_percent damp_auto_increment dataset "
    "lm_head meta model_file_base_name model_name_or_path model_seqlen modules_in_block_to_quantize "
    "module_name_preceding_first_block mse pad_token_id static_groups sym tokenizer true_sequential".split()
)
"""Settings of AWQ and GPTQ that say how a checkpoint was made; its tensors tell which layers are quantised."""

KERNELS = frozenset(
    "backend disable_exllama do_fuse exllama_config fuse_max_seq_len max_input_length modules_to_fuse use_cuda_fp16 "
    "use_exllama".split()
)
"""Settings of AWQ and GPTQ that choose another program's kernels."""

LAYERS = frozenset({"quant_method", "modules_to_not_convert"})

OTHERS = {
    "auto-round": "the layout depends on a backend that it names",
    "bitsandbytes": "only the package bitsandbytes can read it",
    "fbgemm_fp8": "it has another layout than fp8",
    "gguf": "GGUF files are not safetensors",
    "hqq": "only the package hqq can read it",
    "mxfp4": "its experts are stored in a layout of their own",
    "torchao": "it stores pickled tensors, or needs torchao's own classes",
}
"""Ways of quantising that are known and not read, with the reason."""


def read_scheme(config: Mapping[str, Any]) -> Scheme | None:
    """Returns how the weights of a config.json are stored; None for plain ones.

    Raises UnsupportedModelError for what is not read, naming the setting.
    """
    inner = config.get("text_config")
    if isinstance(inner, Mapping) and inner.get(KEY) is not None:
        raise _refusal("it stands in text_config, and only that of a whole checkpoint is read")
    settings = config.get(KEY)
    if settings is None:
        return None
    if not isinstance(settings, Mapping):
        raise _refusal("it is no object")
    method = settings.get("quant_method")
    if method == "awq":
        return _awq(settings)
    if method == "gptq":
        return _gptq(settings)
    if method == "fp8":
        return _fp8(settings)
    if method == "compressed-tensors":
        return _compressed_tensors(settings)
    why = OTHERS.get(method, "there is no reader for it") if isinstance(method, str) else "it names no method"
    raise _refusal(f"quant_method is {ascii(method)[:80]}, which is not read ({why})")


def _awq(settings: Mapping[str, Any]) -> Awq:
    known = {"bits", "w_bit", "group_size", "q_group_size", "zero_point", "version", "format", "desc_act"}
    _refuse_unknown(settings, LAYERS | MAKING | KERNELS | known | {"checkpoint_format"})
    _refuse_other(settings, "bits", 4, default=settings.get("w_bit", 4))
    _refuse_other(settings, "zero_point", True, default=True)
    _refuse_other(settings, "desc_act", False, default=False)
    for key in ("version", "format"):
        _refuse_other(settings, key, "gemm", default="gemm")
    return Awq(_group_size(settings, default=settings.get("q_group_size", 128)))


def _gptq(settings: Mapping[str, Any]) -> Gptq:
    known = {"bits", "group_size", "desc_act", "format", "checkpoint_format", "pack_dtype", "dynamic"}
    _refuse_unknown(settings, LAYERS | MAKING | KERNELS | known | {"is_marlin_format"})
    _refuse_other(settings, "bits", 4)
    _refuse_other(settings, "pack_dtype", "int32", default="int32")
    _refuse_other(settings, "is_marlin_format", False, default=False)
    if settings.get("dynamic"):
        raise _refusal("dynamic gives some layers settings of their own, which is not read")
    layout = settings.get("checkpoint_format", settings.get("format", "gptq"))
    if layout not in ("gptq", "gptq_v2"):
        raise _refusal(f"checkpoint_format is {ascii(layout)[:80]}, and only gptq and gptq_v2 are read")
    return Gptq(_group_size(settings), zeros_less_one=layout == "gptq")


def _fp8(settings: Mapping[str, Any]) -> Fp8:
    known = {"activation_scheme", "weight_block_size", "dequantize", "fmt", "scale_fmt", "expert_dtype"}
    _refuse_unknown(settings, LAYERS | known | {"modules_to_convert", "ignored_layers"})
    _refuse_other(settings, "fmt", "e4m3", default="e4m3")
    _refuse_other(settings, "scale_fmt", "float", default="float")
    _refuse_other(settings, "expert_dtype", "fp8", default="fp8")
    if settings.get("modules_to_convert"):
        raise _refusal("modules_to_convert quantises more than linear layers, which is not read")
    block = settings.get("weight_block_size", (128, 128))
    if block is None:
        return Fp8(None)
    if not isinstance(block, list | tuple) or len(block) != 2 or not all(_is_positive(size) for size in block):
        raise _refusal(f"weight_block_size is {ascii(block)[:80]}, and must be two numbers, or null")
    return Fp8((block[0], block[1]))


def _compressed_tensors(settings: Mapping[str, Any]) -> CompressedTensors:
    if settings.get("kv_cache_scheme"):
        raise _refusal("kv_cache_scheme asks for quantised keys and values, which are kept as they are here")
    if settings.get("transform_config"):
        raise _refusal("transform_config asks for rotations between layers, which are not computed")
    groups = settings.get("config_groups")
    if not isinstance(groups, Mapping) or len(groups) != 1:
        raise _refusal("config_groups must be one way of quantising, since transformers applies one to all layers")
    if sparsity := settings.get("sparsity_config"):
        layout = sparsity.get("format") if isinstance(sparsity, Mapping) else sparsity
        if layout != "dense":
            raise _refusal(f"sparsity_config has the format {ascii(layout)[:80]}, and only dense weights are read")
    return CompressedTensors(settings)


def _group_size(settings: Mapping[str, Any], default: Any = None) -> int | None:
    size = settings.get("group_size", default)
    if size == -1:
        return None
    if not _is_positive(size):
        raise _refusal(f"group_size is {ascii(size)[:80]}, and must be a number of inputs, or -1 for all")
    return int(size)


def _is_positive(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _refuse_unknown(settings: Mapping[str, Any], known: frozenset[str]) -> None:
    if unknown := sorted(ascii(key)[1:-1][:80] for key in set(settings) - known):
        raise _refusal(f"{', '.join(unknown[:4])}: such settings of {settings['quant_method']} are not known here")


def _refuse_other(settings: Mapping[str, Any], key: str, wanted: object, default: object = None) -> None:
    """Refuses every value of a setting but one; letters may be capitals."""
    value = settings.get(key, default)
    if isinstance(value, str):
        value = value.lower()
    if value != wanted or type(value) is not type(wanted):
        raise _refusal(f"{key} is {ascii(value)[:80]}, and only {wanted!r} is read")


def _refusal(what: str) -> UnsupportedModelError:
    return UnsupportedModelError(f"{KEY}: {what}; use the plain checkpoint, or one that docs/MODELS.md lists")
