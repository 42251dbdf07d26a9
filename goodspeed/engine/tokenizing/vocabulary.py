"""The vocabulary of a checkpoint: its tokenizer, and what belongs to texts in it.

Serving users takes this much of a checkpoint and no more, so a node without a model serves them, too.
"""

from dataclasses import dataclass, field
from typing import Any

from goodspeed.engine.tokenizing.generation_settings import GenerationSettings


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """A tokenizer with its properties, and with the identity of the model that it was loaded with."""

    name: str
    tokenizer: Any
    tokenizer_fingerprint: str
    eos_ids: tuple[int, ...]
    num_tokens: int  # ids below it are the tokenizer's
    model_fingerprint: str = ""  # of the weights, their precision and revision; empty without a model
    settings: GenerationSettings = field(default_factory=GenerationSettings)  # how its makers want it sampled
