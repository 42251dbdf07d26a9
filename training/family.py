"""The architectures of the family, and their checkpoints."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

from training import tokenizer

# Few, wide layers: on a CPU the cost of a small model is mostly one Python call after another.
SHAPES = {
    "tiny-target": {"hidden_size": 384, "num_hidden_layers": 8, "num_attention_heads": 6, "intermediate_size": 768},
    "tiny-draft-s": {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 384},
    "tiny-draft-m": {"hidden_size": 192, "num_hidden_layers": 3, "num_attention_heads": 6, "intermediate_size": 512},
    "tiny-draft-p": {"hidden_size": 192, "num_hidden_layers": 3, "num_attention_heads": 6, "intermediate_size": 512},
}
# What a model that drafts several tokens in one pass has beyond the others: a mask, which is no token of the tokenizer.
SPARE_IDS = 8  # a multiple of eight rows; the first is the mask
PARALLEL = {"tiny-draft-p": {"pard_token": tokenizer.VOCAB_SIZE, "pard_num_tokens": 8, "spd_type": "pard"}}


def config(name: str) -> LlamaConfig:
    shape, parallel = SHAPES[name], PARALLEL.get(name, {})
    return LlamaConfig(
        **shape,
        **parallel,
        num_key_value_heads=shape["num_attention_heads"],
        vocab_size=tokenizer.VOCAB_SIZE + (SPARE_IDS if parallel else 0),
        max_position_embeddings=tokenizer.MAX_LENGTH,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.END_ID,
        pad_token_id=tokenizer.END_ID,
        dtype="bfloat16",
    )


def create(name: str, seed: int = 0) -> LlamaForCausalLM:
    """A model with fresh weights, in float32."""
    torch.manual_seed(seed)
    return LlamaForCausalLM(config(name)).float()


def load(name: str, folder: Path) -> LlamaForCausalLM:
    """The model of a checkpoint folder, in float32."""
    model = create(name)
    weights = {key: tensor.float() for key, tensor in load_file(folder / "model.safetensors").items()}
    missing, unexpected = model.load_state_dict(weights, strict=False)
    if set(missing) - {"lm_head.weight"} or unexpected:
        raise ValueError(f"{folder} is not a {name} checkpoint: missing {missing}, unexpected {unexpected}")
    return model


def widened(name: str, weights: Path, origin: str) -> LlamaForCausalLM:
    """A fresh model that continues from another one's weights; the rows of its spare ids stay as they are drawn."""
    model, known = create(name), load(origin, weights / origin).state_dict()
    for key, tensor in model.state_dict().items():
        tensor[: len(known[key])] = known[key]
    return model


def save(model: LlamaForCausalLM, folder: Path) -> None:
    """Write config.json, the generation configs and the weights in bfloat16; the tied output layer is left out.

    What ends a turn has a file of its own: with stop strings in generation_config.json, transformers' `generate` would
    not run without a tokenizer.
    """
    folder.mkdir(parents=True, exist_ok=True)
    weights = {
        k: v.detach().to(torch.bfloat16).contiguous() for k, v in model.state_dict().items() if k != "lm_head.weight"
    }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    settings = {"architectures": ["LlamaForCausalLM"], **model.config.to_diff_dict()}
    (folder / "config.json").write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n")
    generation = {"eos_token_id": tokenizer.END_ID, "pad_token_id": tokenizer.END_ID, "do_sample": True}
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")
    chats = {"stop_strings": [tokenizer.TURN_END]}
    (folder / "chat_generation_config.json").write_text(json.dumps(chats, indent=2) + "\n")
