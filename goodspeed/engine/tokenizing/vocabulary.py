"""A checkpoint's vocabulary: its tokenizer, and the properties of texts in it.

A node needs no more than this to serve users, so a node without a model can serve them.
"""

from dataclasses import dataclass, field
from typing import Any

from goodspeed.engine.tokenizing.generation_settings import GenerationSettings


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """A tokenizer with its properties, and the fingerprint of the model that it was loaded with."""

    name: str
    tokenizer: Any
    tokenizer_fingerprint: str
    eos_ids: tuple[int, ...]  # that the tokenizer has; the model can draw no others
    num_tokens: int  # ids below it are tokens: of the tokenizer, and of its model if that is known (`num_shared`)
    model_fingerprint: str = ""  # of the weights and what computes them; empty without a model
    settings: GenerationSettings = field(default_factory=GenerationSettings)  # sampling defaults of the model's makers
