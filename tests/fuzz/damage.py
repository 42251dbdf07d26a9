"""Ways to spoil bytes and messages, all out of a `random.Random`: for Hypothesis and for live sockets.

What is spoilt stays near to what is right, since what is wrong everywhere is refused by the first check.
"""

import math
import struct
from random import Random

import msgspec

HEADERS = {  # MessagePack headers that promise 2^32 - 1 bytes, items or pairs
    "bytes": b"\xc6\xff\xff\xff\xff",
    "str": b"\xdb\xff\xff\xff\xff",
    "array": b"\xdd\xff\xff\xff\xff",
    "map": b"\xdf\xff\xff\xff\xff",
    "ext": b"\xc9\xff\xff\xff\xff\x01",
}

OPENINGS = (b"\x91", b"\x81\xa1a", b"\xdd\x00\x00\x00\x01", b"[", b'{"a":', b"(")
"""The openings of something that nests: MessagePack, JSON, TOML."""

TEXTS = (b"\xff", b"\xed\xa0\x80", b"\x00", b"\x1b[31m", b"\n", b"'", b'"', b"\\ud800", b"\xe2\x80\xa8", b"=", b"#")

NUMBERS = (
    *(struct.pack("<f", value) for value in (math.nan, math.inf, -math.inf, -0.0, 1e-45, 3e38, -1.0, 0.0)),
    *(struct.pack("<e", value) for value in (math.nan, math.inf, -0.0, 6e-8, 65504.0)),
    *(struct.pack("<I", value) for value in (0, 1, 256, 257, 1 << 31, (1 << 32) - 1)),
    *(b"NaN", b"1e999", b"-1", b"9" * 5000, b"0", b"1e-400", b"1_0", b"0x" + b"f" * 40),
)

WRONG_VALUES: tuple[object, ...] = (
    *(None, True, False, -1, 0, 1, 7, 64, 65, 1024, 1025, 1 << 31, 1 << 62, (1 << 63) - 1, (1 << 64) - 1, -(1 << 63)),
    *(0.5, -0.0, 5e-324, 1e308, math.nan, math.inf, -math.inf),
    *("", "ratio", "match", "x" * 300, "\x1b[31mred", "a\nb", "\u202e", "\ud7ff", "open"),
    *(b"", b"\x00", bytes(8), bytes(15), bytes(16), bytes(17), b"\xff" * 300),
    *([], [[]], [1], [-1], ["a"], [1 << 31], [1] * 65, [1] * 1025, [None] * 20, {}, {"a": 1}, {1: [2]}),
    *(msgspec.msgpack.Ext(1, b"x"), msgspec.msgpack.Ext(-1, bytes(8))),
)


def damaged(data: bytes, random: Random) -> bytes:
    """The bytes with one to four things wrong with them: flipped, cut, repeated, or something hostile put in."""
    spoilt = bytearray(data)
    for _ in range(random.randint(1, 4)):
        _damage(spoilt, random)
    return bytes(spoilt)


def _damage(data: bytearray, random: Random) -> None:
    start = random.randint(0, len(data))
    end = min(len(data), start + random.choice((0, 1, 1, 2, 4, 8, 40)))
    match random.randrange(8):
        case 0 | 1 if data:
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        case 2:
            del data[start:]
        case 3:
            data[start:end] = random.randbytes(random.randint(0, 4))
        case 4:
            data[start:start] = data[start:end] * random.choice((1, 2, 50))
        case 5:
            data[start:end] = random.choice(list(HEADERS.values()))
        case 6:
            data[start:end] = random.choice(TEXTS + NUMBERS)
        case _:
            data[start:end] = random.choice(OPENINGS) * random.choice((1, 3, 200, 5000))


def wrong_fields(message: msgspec.Struct, random: Random) -> bytes:
    """A message with one to three of its fields wrong, or one more, or some fewer."""
    values = msgspec.msgpack.decode(msgspec.msgpack.encode(message))
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        place = random.randrange(len(values) + 1)
        values[place : place + 1] = [random.choice(WRONG_VALUES)]
    if random.random() < 0.1:
        del values[random.randrange(len(values)) :]
    return msgspec.msgpack.encode(values)
