"""A draft node's enrolment at the verify node: its key, name and limits. Plain data, no I/O."""

import re
from typing import Annotated, Final, TypeAlias

from msgspec import Meta, Struct

from goodspeed.slo.objectives import MAX_TIERS, Limit
from goodspeed.wire.fields import Name

Z85: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"

Key: TypeAlias = Annotated[str, Meta(pattern=rf"^[{re.escape(Z85)}]{{40}}\Z")]
"""A Curve25519 key of 32 bytes in Z85, ZeroMQ's notation."""


class Enrolled(Struct, frozen=True, forbid_unknown_fields=True):
    """An enrolled draft node: its public key, name and limits."""

    name: Name
    public_key: Key
    weight: Annotated[float, Meta(ge=0.001, le=1000.0)] = 1.0  # in the utility that the policy maximizes
    max_sessions: Annotated[int, Meta(ge=1, le=1 << 20)] | None = None  # open at once; None: as any client
    tiers: Annotated[tuple[Name, ...], Meta(max_length=MAX_TIERS)] | None = None  # service levels allowed; None: any
    least_tpot_s: Limit | None = None  # shortest TPOT allowed; None: its tiers' shortest, or any

    def __post_init__(self) -> None:
        check_key(self.public_key)


def check_key(key: str) -> None:
    """Raises ValueError unless 40 characters of Z85 encode 32 bytes; msgspec turns it into a ValidationError."""
    for start in range(0, len(key), 5):
        number = 0
        for character in key[start : start + 5]:
            number = number * 85 + Z85.index(character)
        if number >= 1 << 32:
            raise ValueError("a key is not Z85: a group of five characters is too large")
