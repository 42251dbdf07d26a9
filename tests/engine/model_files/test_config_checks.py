"""Models whose configuration asks for what the engine would compute wrongly are refused by name, with the reason."""

from typing import Any

import pytest
import transformers

from goodspeed.engine.torch import checkpoints
from goodspeed.errors import UnsupportedModelError
from tests.engine.conftest import Save
from tests.engine.torch.test_families import SIZES


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("Gemma2", {"num_key_value_heads": 2, "head_dim": 8}, "attn_logit_softcapping.*not supported"),
        (
            "Llama",
            {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
            "'dynamic'.*another",
        ),
        (
            "Phi3",
            {
                "max_position_embeddings": 64,
                "rope_parameters": {
                    "rope_type": "longrope",
                    "rope_theta": 1e4,
                    "partial_rotary_factor": 1.0,
                    "short_factor": [1.0] * 4,
                    "long_factor": [2.0] * 4,
                    "original_max_position_embeddings": 32,
                },
            },
            "'longrope'.*longest sequence",
        ),
        ("Mamba", {"state_size": 4}, "linear_attention"),
        ("Lfm2", {"num_key_value_heads": 2, "layer_types": ["conv", "full_attention"]}, "layer types \\['conv'\\]"),
    ],
)
def test_refused_by_name(save_checkpoint: Save, name: str, changes: dict[str, Any], reason: str) -> None:
    folder = save_checkpoint(getattr(transformers, f"{name}Config")(**(SIZES | changes)))
    with pytest.raises(UnsupportedModelError, match=reason):
        checkpoints.load(str(folder))
