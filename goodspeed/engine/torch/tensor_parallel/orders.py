"""Serializes orders: a length, then MessagePack of plain integers. Rank 0 alone writes to a rank's pipe."""

import struct
from typing import Any, BinaryIO

import msgspec
import numpy as np

from goodspeed.engine.torch.passes import Copy, Memory, Order, Pass

LENGTH = struct.Struct("<Q")


def encode(order: Order | None) -> bytes:
    """Serializes an order; None marks the end of the stream."""
    data = _ENCODER.encode((type(order).__name__, order))
    return LENGTH.pack(len(data)) + data


def read(stream: BinaryIO) -> Order | None:
    """Reads the next order; None at the end marker. EOFError if the stream ends."""
    [size] = LENGTH.unpack(_read(stream, LENGTH.size))
    kind, fields = _NAMED.decode(_read(stream, size))
    order: Order | None = _BY_KIND[kind].decode(fields)
    return order


def _read(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError("rank 0 has ended")
    return data


def _unpack(_: type, data: Any) -> Any:
    return np.frombuffer(bytearray(data), np.int64)  # a copy: torch needs a writable array


_ENCODER = msgspec.msgpack.Encoder(enc_hook=lambda array: np.asarray(array, np.int64).tobytes())
_NAMED = msgspec.msgpack.Decoder(tuple[str, msgspec.Raw])
_BY_KIND: dict[str, Any] = {
    kind.__name__: msgspec.msgpack.Decoder(kind, dec_hook=_unpack) for kind in (Pass, Copy, Memory, type(None))
}
