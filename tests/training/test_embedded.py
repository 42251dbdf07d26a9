"""The embedded checkpoints and their tokenizer: of the stated sizes, read by Hugging Face's classes."""

import json

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

from goodspeed.embedded import models
from goodspeed.engine.tokenizing.generation_settings import TextDefaults, read

SIZES = {"tiny-target": (12e6, 16e6), "tiny-draft-s": (0.5e6, 1e6), "tiny-draft-m": (1.5e6, 2.5e6)}
SIZES["tiny-draft-p"] = SIZES["tiny-draft-m"]
END, TURN_END = "<|end|>", "\n\n"
TOKENIZER: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(models.path("tiny-target"))


@pytest.mark.parametrize("name", models.NAMES)
def test_loads_as_an_ordinary_checkpoint_of_16_bits(name: str) -> None:
    assert json.loads((models.path(name) / "config.json").read_text())["dtype"] == "bfloat16"
    model = AutoModelForCausalLM.from_pretrained(models.path(name))
    assert model.dtype == torch.bfloat16
    fewest, most = SIZES[name]
    assert fewest <= sum(p.numel() for p in model.parameters()) <= most
    assert model.config.max_position_embeddings == 2048


def test_family_shares_one_tokenizer_and_fits_in_50_mb() -> None:
    files = [path for name in models.NAMES for path in models.path(name).iterdir()]
    assert sum(path.stat().st_size for path in files) <= 50e6
    assert len({(models.path(name) / "tokenizer.json").read_bytes() for name in models.NAMES}) == 1


# -- the tokenizer -----------------------------------------------------------------------------------------------------


def test_nothing_is_added_to_a_prompt() -> None:
    assert TOKENIZER("The end").input_ids == TOKENIZER("The end", add_special_tokens=False).input_ids
    assert TOKENIZER(END).input_ids == [0] == [TOKENIZER.eos_token_id]
    assert len(TOKENIZER) == 4096


@pytest.mark.parametrize("name", models.NAMES)
def test_the_models_say_what_ends_a_turn_to_chats_alone(name: str) -> None:
    """The end of a turn stands elsewhere: in generation_config.json it would make `generate` ask for a tokenizer."""
    found = read(name, models.path(name))
    assert found.chats.stop == (TURN_END,)
    assert found.completions == TextDefaults()
    assert not found.unsupported
