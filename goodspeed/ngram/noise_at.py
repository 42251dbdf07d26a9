"""The match rule's noise at a few token ids, without torch: `goodspeed.exact.noise.match_noise` at these ids.

The integers are the same to the last bit; the logarithm is a double's, which differs from a float32's by rounding only.
Knows nothing about probabilities.
"""

from collections.abc import Iterable
from math import log1p
from struct import Struct

_M32, _M64 = (1 << 32) - 1, (1 << 64) - 1
_START = 0x9E3779B97F4A7C15  # (Role.MATCH + 1) times the golden ratio
_GOLDEN_32 = 0x7F4A7C15
_FACTOR = (1 - 2.0**-24) * 2.0**-31

_float32 = Struct("f")


def match_key(seed: int, position: int) -> int:
    """Returns the 64 bits that key the noise of a seed at an absolute position of the text."""
    return _mix(_mix(_START ^ seed & _M64) ^ position & _M64)


def noise_at(key: int, tokens: Iterable[int]) -> list[float]:
    """Returns the Exp(1) noise of a key at token ids, in 1 us each."""
    low, high = key & _M32, key >> 32 | 1
    pack, unpack = _float32.pack, _float32.unpack
    found = []
    for token in tokens:
        x = ((token * _GOLDEN_32 ^ low) & _M32) * high & _M32
        x = (x ^ x >> 16) * 0x7FEB352D & _M32
        x = (x ^ x >> 16) * 0x846CA68B & _M32
        # |x + 1/4| of the signed number, to 24 bits: float32 keeps the quarter of numbers below 2^22 only
        y: float = x if x < 0x80000000 else 0x100000000 - x
        if y < 0x400000:
            y += 0.25 if x < 0x80000000 else -0.25
        elif y > 0x1000000:
            y = unpack(pack(y))[0]
        found.append(-log1p(-unpack(pack(y * _FACTOR))[0]))
    return found


def _mix(x: int) -> int:
    """One finaliser of splitmix64 on an unsigned number."""
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & _M64
    x = (x ^ x >> 27) * 0x94D049BB133111EB & _M64
    return x ^ x >> 31
