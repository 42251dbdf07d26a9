"""What trees simulated draft nodes send: what they drafted, or any shape and any tokens, with duplicates. No I/O."""

from random import Random
from typing import Literal, TypeAlias

from msgspec.structs import replace

from experiments.simulation.texts.text import VOCAB
from goodspeed.wire.fields import MAX_DRAFT
from goodspeed.wire.messages import Draft, UpMessage

Trees: TypeAlias = Literal["own", "hostile"]

FEW = 12
"""A hostile tree has at most so many nodes more than what was drafted."""


def shaped(message: UpMessage, trees: Trees) -> UpMessage:
    """The message; of a hostile node a draft's tokens are nodes of another tree, the same one whenever it is sent."""
    if trees == "own" or not isinstance(message, Draft) or not message.probabilities:
        return message
    random = Random(message.session_id + message.base_len.to_bytes(8, "big") + bytes(message.probabilities))
    num = min(MAX_DRAFT, len(message.tokens) + random.randint(1, FEW))
    tokens = [random.choice((*message.tokens, random.randrange(VOCAB))) for _ in range(num)]
    tokens[: len(message.tokens)] = message.tokens
    parents = bytes(random.randint(0, node) for node in range(num))
    claimed = random.choice((bytes(num), random.randbytes(num)))
    return replace(message, tokens=tuple(tokens), probabilities=claimed, parents=parents)
