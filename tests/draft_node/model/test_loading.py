"""The precision in which a draft model is loaded."""

import pytest
import torch

from draft_node.config import DraftConfig
from draft_node.model import loading
from goodspeed.embedded import models
from tests.engine import gguf_models


@pytest.mark.parametrize(
    ("asked", "is_large", "has_bfloat16", "dtype"),
    [
        ("auto", True, True, torch.bfloat16),
        ("auto", True, False, torch.float32),
        ("auto", False, True, torch.float32),
        ("float32", True, True, torch.float32),
        ("bfloat16", False, False, torch.bfloat16),
    ],
)
def test_a_cpu_takes_the_quickest_precision_unless_told(asked, is_large, has_bfloat16, dtype, monkeypatch):
    size = (models.path("tiny-draft-s") / "model.safetensors").stat().st_size
    monkeypatch.setattr(loading, "LARGE_BYTES", size if is_large else size + 1)
    monkeypatch.setattr(loading, "has_bfloat16", lambda: has_bfloat16)
    assert loading.load(DraftConfig(model="tiny-draft-s", dtype=asked)).dtype == dtype


@pytest.mark.parametrize(("has_bfloat16", "dtype"), [(True, "bfloat16"), (False, "float16")])
def test_a_gpu_takes_the_half_precision_that_it_has(has_bfloat16, dtype, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: has_bfloat16)
    assert loading.quickest_dtype(str(tmp_path), "cuda:0") == dtype


def test_a_gguf_file_drafts_whatever_its_bits_depend_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A target of these bits would be refused."""
    monkeypatch.setattr("goodspeed.engine.openvino.loading._has_bits", lambda *_: False)
    assert loading.load(DraftConfig(model=str(gguf_models.made("Q8_0")))).engine == "openvino"
