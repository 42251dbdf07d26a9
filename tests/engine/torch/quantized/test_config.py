"""Settings of quantised checkpoints: what is read, and every other one refused by its name."""

from typing import Any

import pytest

from goodspeed.engine.torch.quantized.config import read_group_size
from goodspeed.errors import UnsupportedModelError

AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 64}


def read(settings: dict[str, Any]) -> object:
    return read_group_size({"model_type": "llama", "quantization_config": settings})


def test_plain_checkpoints_have_no_groups():
    assert read_group_size({}) is read_group_size({"quantization_config": None}) is None


@pytest.mark.parametrize(
    ("settings", "group_size"),
    [
        (AWQ, 128),
        (AWQ | {"version": "GEMM", "group_size": -1, "modules_to_not_convert": ["lm_head"]}, -1),
        ({"quant_method": "awq", "w_bit": 4, "q_group_size": 64, "zero_point": True}, 64),
        (AWQ | {"do_fuse": False, "exllama_config": None, "desc_act": False, "sym": True}, 128),
    ],
)
def test_what_is_read(settings, group_size):
    assert read(settings) == group_size


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
        (GPTQ, "'gptq', which is not supported"),
        ({"quant_method": "new\x1b[0m"}, r"'new\\x1b\[0m', which is not supported"),
        ({"bits": 4}, "quant_method is None, which is not supported"),
        ({"quant_method": ["awq"]}, "which is not supported"),
    ],
)
def test_refused_by_name(settings, what):
    with pytest.raises(UnsupportedModelError, match=rf"^quantization_config: .*{what}.*; use the plain checkpoint"):
        read(settings)


@pytest.mark.parametrize("place", [{"quantization_config": []}, {"text_config": {"quantization_config": AWQ}}])
def test_refused_by_place(place):
    with pytest.raises(UnsupportedModelError, match="quantization_config: it"):
        read_group_size(place)
