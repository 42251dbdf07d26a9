"""Families of models: of each a tiny random checkpoint gives the logits of the unmodified model.

The list of docs/MODELS.md is this one. `attention/test_trees.py` tries trees with Llama, Qwen3, Mistral and Phi-3.
"""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from goodspeed.engine.paged.chunks import Chunk
from goodspeed.engine.torch import checkpoints
from goodspeed.engine.torch.loading import start
from tests.engine.conftest import SMALL, Save

SIZES: dict[str, Any] = {name: size for name, size in SMALL.items() if name != "max_position_embeddings"}
GROUPED: dict[str, Any] = {"num_key_value_heads": 2}
NARROW: dict[str, Any] = GROUPED | {"head_dim": 8}
WINDOWED: dict[str, Any] = GROUPED | {"sliding_window": 5}
EXPERTS: dict[str, Any] = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
ROUTED: dict[str, Any] = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
ROUTED |= {"n_group": 1, "topk_group": 1, "first_k_dense_replace": 1}
LATENT: dict[str, Any] = {"q_lora_rank": 16, "kv_lora_rank": 16, "num_key_value_heads": 4}
LATENT |= {"qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8}
OLDER: dict[str, Any] = {"n_embd": 32, "n_layer": 2, "n_head": 4, "resid_pdrop": 0.0}

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "apertus": ("Apertus", GROUPED),
    "arcee": ("Arcee", GROUPED),
    "cohere": ("Cohere", GROUPED),
    "cohere2": ("Cohere2", WINDOWED),
    "deepseek_v3": ("DeepseekV3", LATENT | ROUTED),
    "ernie4_5": ("Ernie4_5", GROUPED),
    "exaone4": ("Exaone4", WINDOWED),
    "flex_olmo": ("FlexOlmo", GROUPED),
    "gemma": ("Gemma", NARROW | {"num_key_value_heads": 1}),
    "gemma3_text": ("Gemma3Text", NARROW | {"num_hidden_layers": 6, "sliding_window": 5}),
    "glm": ("Glm", NARROW),
    "glm4": ("Glm4", NARROW),
    "glm4_moe": ("Glm4Moe", NARROW | ROUTED),
    "gpt2": ("GPT2", OLDER),
    "gpt_bigcode": ("GPTBigCode", OLDER),
    "gpt_neox": ("GPTNeoX", {}),
    "granite": ("Granite", GROUPED | {"logits_scaling": 4.0}),
    "granitemoe": ("GraniteMoe", GROUPED | {"num_local_experts": 4}),
    "helium": ("Helium", NARROW),
    "hunyuan_v1_dense": ("HunYuanDenseV1", NARROW),
    "jais2": ("Jais2", GROUPED),
    "llama": ("Llama", GROUPED),
    "llama with yarn": ("Llama", {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 2.0}}),
    "ministral": ("Ministral", NARROW | WINDOWED),
    "mistral": ("Mistral", WINDOWED),
    "mixtral": ("Mixtral", GROUPED | {"num_local_experts": 4}),
    "olmo": ("Olmo", GROUPED),
    "olmo2": ("Olmo2", GROUPED),
    "olmo3": ("Olmo3", WINDOWED),
    "opt": ("OPT", {"ffn_dim": 64, "word_embed_proj_dim": 32, "max_position_embeddings": 128}),
    "persimmon": ("Persimmon", {}),
    "phi": ("Phi", GROUPED),
    "phi3": ("Phi3", GROUPED),
    "qwen2": ("Qwen2", GROUPED),
    "qwen2 with windows": ("Qwen2", WINDOWED | {"use_sliding_window": True, "max_window_layers": 1}),
    "qwen2_moe": ("Qwen2Moe", GROUPED | EXPERTS | {"shared_expert_intermediate_size": 32}),
    "qwen3": ("Qwen3", NARROW),
    "qwen3_moe": ("Qwen3Moe", NARROW | EXPERTS | {"mlp_only_layers": []}),
    "seed_oss": ("SeedOss", NARROW),
    "smollm3": ("SmolLM3", GROUPED),
    "starcoder2": ("Starcoder2", GROUPED),
}


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # older gpt_bigcode of transformers
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_the_models_own(save_checkpoint: Save, family: str) -> None:
    """The trial at the start compares logits; here again beyond the window, in pieces."""
    name, changes = FAMILIES[family]
    folder = save_checkpoint(getattr(transformers, f"{name}Config")(**(SIZES | changes)))
    checkpoint = checkpoints.load(str(folder))
    assert checkpoint.model.config.model_type == family.split(" with ")[0]
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokens = [(i * i) % 250 for i in range(40)]
    with torch.inference_mode():
        expected = model(torch.tensor([tokens]), use_cache=False).logits[0, 20:, :258]
    engine = start(checkpoint, num_pages=16)
    engine.forward([Chunk("a", tokens[:20], 0)])
    found = torch.cat([engine.forward([Chunk("a", tokens[i : i + 5], 5)]) for i in range(20, 40, 5)])[:, :258]
    torch.testing.assert_close(found, expected, atol=1e-4 * max(1, expected.abs().max().item()), rtol=0)


@pytest.mark.parametrize(("written", "wanted"), [(512, 2048), (2048, 2048), (4096, 4096)])
def test_positions_that_are_stretched_have_their_whole_length(save_checkpoint: Save, written: int, wanted: int) -> None:
    """Qwen's instructions leave the length that was trained in config.json, others have the stretched one there."""
    rope = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 512}
    sizes = SIZES | NARROW | {"max_position_embeddings": written, "rope_parameters": rope}
    assert checkpoints.load(str(save_checkpoint(transformers.Qwen3Config(**sizes)))).context_len == wanted


def test_the_document_lists_them() -> None:
    document = Path(__file__).parents[3] / "docs" / "MODELS.md"
    listed = document.read_text(encoding="utf-8").split("## What is refused")[0]
    names = set(re.findall(r"[a-z][a-z0-9_]+(?=[,.]| \(also)", " ".join(listed.split("- **dense:**")[1].split())))
    assert names >= {family.split(" with ")[0] for family in FAMILIES}
