"""Checkpoints of made models: random weights, no tokenizer."""

from typing import Any

from goodspeed.engine.checkpoints import Checkpoint


def made_checkpoint(model: Any, context_len: int = 2048, name: str = "made") -> Checkpoint:
    """A checkpoint of this model, on its device and in its dtype; every id of its vocabulary is a token."""
    return Checkpoint(
        name=name,
        model=model,
        tokenizer=None,
        tokenizer_fingerprint="",
        eos_ids=(),
        vocab_size=model.config.vocab_size,
        num_tokens=model.config.vocab_size,
        context_len=context_len,
        device=model.device,
        dtype=model.dtype,
    )
