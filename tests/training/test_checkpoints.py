"""The embedded checkpoints: found by name, of the stated sizes, loaded by the ordinary Hugging Face classes."""

import json

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from goodspeed.embedded import models
from goodspeed.errors import CheckpointError
from training import domains, tokenizer

SIZES = {"tiny-target": (12e6, 16e6), "tiny-draft-s": (0.5e6, 1e6), "tiny-draft-m": (1.5e6, 2.5e6)}
SIZES["tiny-draft-p"] = SIZES["tiny-draft-m"]


@pytest.mark.parametrize("name", models.NAMES)
def test_loads_as_an_ordinary_checkpoint_of_16_bits(name: str) -> None:
    assert json.loads((models.path(name) / "config.json").read_text())["dtype"] == "bfloat16"
    model = AutoModelForCausalLM.from_pretrained(models.path(name))
    assert model.dtype == torch.bfloat16
    fewest, most = SIZES[name]
    assert fewest <= sum(p.numel() for p in model.parameters()) <= most
    assert model.config.max_position_embeddings == 2048
    ids = torch.tensor([AutoTokenizer.from_pretrained(models.path(name))("def ").input_ids])
    assert model.float()(input_ids=ids).logits.isfinite().all()


def test_whole_context_behaves() -> None:
    """At position 2,000 the target still finds held-out text much likelier than chance."""
    encode = tokenizer.load(models.path("tiny-target")).encode
    docs = domains.take("math", 40_000, held_out=True)
    ids = torch.tensor([[i for doc in docs for i in [*encode(doc.text).ids, tokenizer.END_ID]][:2048]])
    assert ids.shape[1] == 2048
    model = AutoModelForCausalLM.from_pretrained(models.path("tiny-target"), dtype=torch.float32)
    with torch.inference_mode():
        logits = model(input_ids=ids).logits
    late = torch.nn.functional.cross_entropy(logits[0, 1900:-1], ids[0, 1901:])
    assert late < 1.0  # chance is ln(4096) = 8.3


def test_family_shares_one_tokenizer_and_fits_in_50_mb() -> None:
    files = [path for name in models.NAMES for path in models.path(name).iterdir()]
    assert sum(path.stat().st_size for path in files) <= 50e6
    assert len({(models.path(name) / "tokenizer.json").read_bytes() for name in models.NAMES}) == 1


def test_unknown_name_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(CheckpointError, match=r"no embedded model is named 'gpt'.*tiny-draft-s"):
        models.path("gpt")
