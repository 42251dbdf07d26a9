"""Serializes orders: a length, then MessagePack of plain integers, so no received bytes can become code."""

import struct
from typing import Any, BinaryIO

import msgspec
import numpy as np

from goodspeed.engine.torch.passes import Copy, Memory, Order, Pass
from goodspeed.errors import MalformedMessage

LENGTH = struct.Struct("<Q")

MAX_BYTES = 1 << 29
"""Most bytes of one order: the page tables of 8,192 sessions with 131,072 cached tokens each."""


def encode(order: Order | None) -> bytes:
    """Serializes an order; None marks the end of the stream."""
    data = _ENCODER.encode((type(order).__name__, order))
    if len(data) > MAX_BYTES:
        raise MalformedMessage(f"a forward pass of more than {MAX_BYTES} bytes cannot be sent; use smaller rounds")
    return LENGTH.pack(len(data)) + data


def read(stream: BinaryIO) -> Order | None:
    """Reads the next order; None at the end marker. EOFError if the stream ends, MalformedMessage for invalid bytes."""
    [size] = LENGTH.unpack(_read(stream, LENGTH.size))
    if size > MAX_BYTES:
        raise MalformedMessage(f"{size} bytes are not a valid size of an order")
    try:
        kind, fields = _NAMED.decode(_read(stream, size))
        order: Order | None = _BY_KIND[kind].decode(fields)
    except (msgspec.DecodeError, KeyError) as error:
        raise MalformedMessage(f"{size} bytes cannot be decoded as an order: {error}") from error
    return order


def _read(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError("rank 0 has ended")
    return data


def _pack(array: Any) -> bytes:
    return np.asarray(array, np.int64).tobytes()


def _unpack(_: type, data: Any) -> Any:
    if not isinstance(data, bytes) or len(data) % 8:
        raise ValueError("expected an array of int64 numbers")
    return np.frombuffer(bytearray(data), np.int64)  # a copy: torch needs a writable array


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_pack)
_NAMED = msgspec.msgpack.Decoder(tuple[str, msgspec.Raw])
_BY_KIND: dict[str, Any] = {
    kind.__name__: msgspec.msgpack.Decoder(kind, dec_hook=_unpack) for kind in (Pass, Copy, Memory, type(None))
}
