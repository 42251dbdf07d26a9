"""The table of a fleet's replicas: with their loads, or without, as a person writes it into the peers file (JSON)."""

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from goodspeed.errors import ConfigError, reason
from goodspeed.fleet.replicas import MAX_REPLICAS, Replica
from goodspeed.untrusted import read_bytes, sanitize

MAX_BYTES = 4 << 20
"""Largest peers file: 64 replicas with the largest loads take half of it."""

EXAMPLE = '{"replicas": [{"name": "a", "endpoint": "tcp://10.0.0.1:5555"}, ...]}'

PUBLIC_KEY = "a public_key must be that of the replica's verify.pub, or be left out where the wire has no keys"


class Table(Struct, frozen=True, forbid_unknown_fields=True):
    """The replicas of a fleet. Names and endpoints are unique; keys may be shared."""

    replicas: Annotated[tuple[Replica, ...], Meta(min_length=1, max_length=MAX_REPLICAS)]

    def __post_init__(self) -> None:
        for what in ("name", "endpoint"):
            values = [getattr(replica, what) for replica in self.replicas]
            if twice := next((value for value in values if values.count(value) > 1), None):
                raise ValueError(f"two replicas have the {what} {twice}")

    def find(self, name: str) -> Replica | None:
        return next((replica for replica in self.replicas if replica.name == name), None)


def read(path: str | Path) -> Table:
    """Reads a peers file; ConfigError describes the fault and the remedy."""
    try:
        return msgspec.json.decode(read_bytes(path, MAX_BYTES), type=Table)
    except OSError as error:
        raise ConfigError(f"--peers {path}: cannot read it ({reason(error)}); it looks like {EXAMPLE}") from None
    except msgspec.ValidationError as error:
        why = PUBLIC_KEY if str(error).endswith(".public_key`") else sanitize(str(error))
        raise ConfigError(f"--peers {path}: {why}; it looks like {EXAMPLE}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ConfigError(f"--peers {path}: it is not JSON; it looks like {EXAMPLE}") from None
