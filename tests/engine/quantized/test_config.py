"""Settings of quantised checkpoints: what is read, and every other one refused by its name."""

from typing import Any

import pytest

from goodspeed.engine.quantized import config
from goodspeed.engine.quantized.config import Awq, CompressedTensors, Fp8, read_scheme
from goodspeed.errors import ConfigError, NotInstalled, UnsupportedModelError

AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 64}
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 64]}
PACKED = {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"group_0": {}}}


def read(settings: dict[str, Any]) -> object:
    return read_scheme({"model_type": "llama", "quantization_config": settings})


def test_plain_checkpoints_have_no_scheme():
    assert read_scheme({}) is read_scheme({"quantization_config": None}) is None


@pytest.mark.parametrize(
    ("settings", "scheme"),
    [
        (AWQ, Awq(128)),
        (AWQ | {"version": "GEMM", "group_size": -1, "modules_to_not_convert": ["lm_head"]}, Awq(None)),
        ({"quant_method": "awq", "w_bit": 4, "q_group_size": 64, "zero_point": True}, Awq(64)),
        (AWQ | {"do_fuse": False, "exllama_config": None, "desc_act": False, "sym": True}, Awq(128)),
        (FP8, Fp8((128, 64))),
        (FP8 | {"weight_block_size": None, "activation_scheme": "static"}, Fp8(None)),
        (PACKED, CompressedTensors(PACKED)),
    ],
)
def test_what_is_read(settings, scheme):
    assert read(settings) == scheme


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        (AWQ | {"bits": 8}, "bits is 8, but only 4 is supported"),
        (AWQ | {"bits": True}, "bits is True"),
        (AWQ | {"zero_point": False}, "zero_point is False"),
        (AWQ | {"version": "gemv"}, "version is 'gemv', but only 'gemm'"),
        (AWQ | {"format": "llm-awq"}, "format is 'llm-awq'"),
        (AWQ | {"group_size": 0}, "group_size is 0"),
        (AWQ | {"group_size": "128"}, "group_size is '128'"),
        (AWQ | {"rotation": "hadamard"}, "rotation: unknown settings of awq"),
        (GPTQ, r"'gptq', which is not supported \(take the AWQ checkpoint of the same model\)"),
        (FP8 | {"fmt": "e5m2"}, "fmt is 'e5m2'"),
        (FP8 | {"scale_fmt": "ue8m0"}, "scale_fmt is 'ue8m0'"),
        (FP8 | {"weight_block_size": [128]}, r"weight_block_size is \[128\]"),
        (FP8 | {"weight_block_size": [128, 0]}, "weight_block_size"),
        (FP8 | {"modules_to_convert": ["embed_tokens"]}, "modules_to_convert"),
        (PACKED | {"kv_cache_scheme": {"num_bits": 8}}, "kv_cache_scheme requests quantised keys"),
        (PACKED | {"config_groups": {"a": {}, "b": {}}}, "config_groups must be one way"),
        (PACKED | {"sparsity_config": {"format": "sparse-24"}}, "sparsity_config has the format 'sparse-24', but only"),
        (PACKED | {"sparsity_config": {"sparsity_structure": "2:4"}}, "sparsity_config has the format None"),
        (PACKED | {"sparsity_config": "dense-ish"}, "sparsity_config has the format 'dense-ish'"),
        (
            {"quant_method": "bitsandbytes", "load_in_4bit": True},
            r"'bitsandbytes', which is not supported \(only the package",
        ),
        (PACKED | {"transform_config": {"config_groups": {}}}, "transform_config"),
        ({"quant_method": "mxfp4"}, r"'mxfp4', which is not supported \(its experts"),
        ({"quant_method": "new\x1b[0m"}, r"'new\\x1b\[0m', which is not supported"),
        ({"bits": 4}, "quant_method is None, which is not supported"),
        ({"quant_method": ["awq"]}, "it names no method"),
    ],
)
def test_refused_by_name(settings, what):
    with pytest.raises(UnsupportedModelError, match=rf"^quantization_config: .*{what}.*; use the plain checkpoint"):
        read(settings)


@pytest.mark.parametrize("place", [{"quantization_config": []}, {"text_config": {"quantization_config": AWQ}}])
def test_refused_by_place(place):
    with pytest.raises(UnsupportedModelError, match="quantization_config: it"):
        read_scheme(place)


def test_compressed_tensors_says_what_is_missing(monkeypatch):
    scheme = CompressedTensors(PACKED)
    monkeypatch.setattr("transformers.utils.__version__", "5.23.0")
    assert config.dequantising(scheme) == PACKED | {"dequantize": True}
    monkeypatch.setattr("goodspeed.errors.find_spec", lambda _: None)
    with pytest.raises(NotInstalled, match=r"pip install -c constraints.txt '\.\[compressed-tensors\]'"):
        config.dequantising(scheme)
    monkeypatch.undo()
    monkeypatch.setattr("transformers.utils.__version__", "5.22.1")
    with pytest.raises(ConfigError, match=r"5\.23 or later"):
        config.dequantising(scheme)
