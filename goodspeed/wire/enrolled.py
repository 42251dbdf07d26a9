"""A draft node's enrolment at the verify node: its key, its name and its limits. Plain data, without any I/O."""

import re
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta, Struct

from goodspeed.slo.objectives import MAX_TIERS, Limit
from goodspeed.wire.fields import Name

MAX_ROUND_TOKENS = 1024
"""The largest limit of a key, over all of its sessions; one draft has at most `MAX_DRAFT` tokens."""

Z85: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"

Key: TypeAlias = Annotated[str, Meta(pattern=rf"^[{re.escape(Z85)}]{{40}}\Z")]
"""32 bytes of Curve25519 in Z85, as ZeroMQ writes them."""


class Enrolled(Struct, frozen=True, forbid_unknown_fields=True):
    """A draft node that may connect: its public key, its name, and its limits."""

    name: Name
    public_key: Key
    weight: Annotated[float, Meta(gt=0.0, le=1000.0)] = 1.0  # in the utility that is shared out by
    max_sessions: Annotated[int, Meta(ge=1, le=1 << 20)] | None = None  # open at once; None: --max-client-sessions
    max_round_tokens: Annotated[int, Meta(ge=1, le=MAX_ROUND_TOKENS)] | None = (
        None  # drafted in a round; None: the budget
    )
    tiers: Annotated[tuple[Name, ...], Meta(max_length=MAX_TIERS)] | None = None  # it may ask for; None: for any
    least_tpot_s: Limit | None = None  # it may ask for; None: the least of its tiers, or any

    def __post_init__(self) -> None:
        check_key(self.public_key)


def check_key(key: str) -> None:
    """Raises ValueError for 40 characters that are no 32 bytes in Z85; msgspec makes it a ValidationError."""
    for start in range(0, len(key), 5):
        number = 0
        for character in key[start : start + 5]:
            number = number * 85 + Z85.index(character)
        if number >= 1 << 32:
            raise ValueError("a key is not Z85: a group of five characters is too large")


def from_table(table: dict[str, object]) -> Enrolled:
    """Decodes a TOML table. ValidationError names a field that is missing, unknown or out of bounds."""
    return msgspec.convert(table, Enrolled)
