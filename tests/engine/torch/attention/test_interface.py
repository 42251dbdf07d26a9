"""Arguments of a model's attention call that would change the result are refused."""

from typing import Any

import pytest
import torch

from goodspeed.engine.torch import checkpoints
from goodspeed.engine.torch.attention.interface import refuse_unknown
from goodspeed.engine.torch.loading import start
from goodspeed.errors import UnsupportedModelError
from tests.engine.conftest import Save


@pytest.mark.parametrize("name", ["softcap", "s_aux", "position_bias", "something_new"])
def test_attention_arguments_that_change_the_result(name: str) -> None:
    refuse_unknown({name: None, "position_ids": torch.zeros(1)}, attention_mask=None, dropout=0.0, is_causal=True)
    with pytest.raises(UnsupportedModelError, match=f"{name}: "):
        refuse_unknown({name: 1.0}, attention_mask=None, dropout=0.0, is_causal=None)


@pytest.mark.parametrize(
    ("given", "what"),
    [({"attention_mask": torch.zeros(1)}, "mask"), ({"dropout": 0.1}, "eval"), ({"is_causal": False}, "bidirectional")],
)
def test_masks_dropout_and_looking_ahead(given: dict[str, Any], what: str) -> None:
    with pytest.raises(UnsupportedModelError, match=what):
        refuse_unknown({}, **({"attention_mask": None, "dropout": 0.0, "is_causal": None} | given))


def test_the_model_alone_says_how_to_call_it(save_checkpoint: Save) -> None:
    engine = start(checkpoints.load(str(save_checkpoint("phi3"))), num_pages=16)
    with pytest.raises(RuntimeError, match=r"call it through goodspeed\.engine\.engines\.start"):
        engine.checkpoint.model(torch.zeros((1, 2), dtype=torch.int64))
