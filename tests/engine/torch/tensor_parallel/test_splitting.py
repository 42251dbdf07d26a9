"""`--tp` refuses models that it cannot split by name, before anything is loaded or started."""

import pytest
import torch

from goodspeed.engine.torch.tensor_parallel.splitting import refuse_folder, refuse_heads, refuse_split
from goodspeed.errors import ConfigError, NotInstalled
from tests.engine.conftest import Save
from verify_node.config import VerifyConfig


@pytest.mark.parametrize(
    ("heads", "kv_heads", "num_ranks", "said"),
    [
        (6, 6, 4, "m has 6 attention heads, which cannot be split evenly; use at most --tp 3"),
        (8, 2, 4, "m has 2 key value heads, which cannot be split evenly; use at most --tp 2"),
        (4, 1, 2, "m has 1 key value heads, which cannot be split evenly; use at most --tp 1"),
        (6, 4, 4, "m has 6 attention heads, which cannot be split evenly; use at most --tp 2"),
    ],
)
def test_heads_that_cannot_be_shared_are_refused(heads: int, kv_heads: int, num_ranks: int, said: str) -> None:
    config = {"num_attention_heads": heads, "num_key_value_heads": kv_heads}
    for known in (config, {"text_config": config}):
        with pytest.raises(ConfigError, match=f"^--tp {num_ranks}: {said}$"):
            refuse_heads("m", known, num_ranks)


def test_heads_that_can_be_shared_or_are_not_told_pass() -> None:
    refuse_heads("m", {"num_attention_heads": 8, "num_key_value_heads": 4}, 4)
    refuse_heads("m", {"num_key_value_heads": None}, 4)


def test_a_folder_is_refused_by_its_config_and_without_accelerate(save_checkpoint, monkeypatch):
    with pytest.raises(ConfigError, match="1 key value heads"):
        refuse_folder(str(save_checkpoint("phi3")), 2)
    refuse_folder("tiny-target", 2)
    monkeypatch.setattr("goodspeed.errors.find_spec", lambda _: None)
    with pytest.raises(NotInstalled, match=r"pip install -c constraints.txt '\.\[tp\]'"):
        refuse_folder("tiny-target", 2)


def test_a_model_without_a_plan_is_refused(save_checkpoint: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = str(save_checkpoint("llama"))
    refuse_split(folder, 2, "cpu")
    monkeypatch.setattr("transformers.LlamaConfig.base_model_tp_plan", None)
    with pytest.raises(ConfigError, match="no plan to split"):
        refuse_split(folder, 2, "cpu")


def test_ranks_need_a_gpu_each_or_no_gpu_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ConfigError, match="has 1 GPUs, and each rank needs one; use fewer"):
        refuse_split("tiny-target", 2, "cuda")
    with pytest.raises(ConfigError, match="--device cuda, or hide the GPUs"):
        refuse_split("tiny-target", 2, "cpu")


def test_a_gpu_by_number_does_not_go_with_ranks() -> None:
    with pytest.raises(ConfigError, match="leave the number away: --device cuda"):
        VerifyConfig(model="m", tp=2, device="cuda:1")
    assert VerifyConfig(model="m", tp=2, device="cuda").tp == 2
    assert VerifyConfig(model="m", device="cuda:1").tp == 1
