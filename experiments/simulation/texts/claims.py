"""Lies of simulated draft nodes: any probabilities of their tokens, and token trees of any shape with duplicates."""

from random import Random
from typing import Literal, TypeAlias

from msgspec.structs import replace

from experiments.simulation.texts.text import VOCAB
from goodspeed.wire import probabilities
from goodspeed.wire.fields import MAX_DRAFT
from goodspeed.wire.messages import Draft, UpMessage

Claims: TypeAlias = Literal["known", "certain", "impossible", "random"]


def claimed(message: UpMessage, claims: Claims) -> UpMessage:
    """The message with these claims in place of its probabilities, the same ones whenever it is sent again."""
    if claims == "known" or not isinstance(message, Draft) or not message.probabilities:
        return message
    return replace(message, probabilities=_codes(message, claims))


def _codes(message: Draft, claims: Claims) -> bytes:
    num = len(message.tokens)
    if claims == "random":
        return Random(message.session_id + message.base_len.to_bytes(8, "big")).randbytes(num)
    return bytes([0 if claims == "certain" else probabilities.LEAST]) * num


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
