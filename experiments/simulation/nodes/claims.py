"""What simulated draft nodes claim about their drafted tokens: what they know, or anything else. Changes no token."""

from random import Random
from typing import Literal, TypeAlias

from msgspec.structs import replace

from goodspeed.wire import probabilities
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
