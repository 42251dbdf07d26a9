"""The match rule's noise at a few token ids, without torch: the values of `goodspeed.exact.noise.match_noise`.

The integers are identical; the logarithm is in double precision, which differs from float32 by rounding only.
"""

from array import array
from collections.abc import Iterable
from math import log1p

_M32, _M64 = (1 << 32) - 1, (1 << 64) - 1
_START = 0x9E3779B97F4A7C15  # (Role.MATCH + 1) times the golden ratio
_GOLDEN_32 = 0x7F4A7C15
_FACTOR = (1 - 2.0**-24) * 2.0**-31


def match_key(seed: int, position: int) -> int:
    """Returns the 64-bit noise key of a seed and an absolute position of the text."""
    return _mix(_mix(_START ^ seed & _M64) ^ position & _M64)


def noise_at(key: int, tokens: Iterable[int]) -> list[float]:
    """Returns the Exp(1) noise of a key at token ids, in 1 us each."""
    low, high = key & _M32, key >> 32 | 1
    magnitudes: list[float] = []
    for token in tokens:
        x = ((token * _GOLDEN_32 ^ low) & _M32) * high & _M32
        x = (x ^ x >> 16) * 0x7FEB352D & _M32
        x = (x ^ x >> 16) * 0x846CA68B & _M32
        # |x + 1/4| of the signed number; from 2^22 on float32 cannot represent the quarter
        if x < 0x80000000:
            magnitudes.append(x if x >= 0x400000 else x + 0.25)
        else:
            magnitudes.append(0x100000000 - x if x <= 0xFFC00000 else 0xFFFFFFFF - x + 0.75)
    rounded = array("f", magnitudes)
    return [-log1p(-value) for value in array("f", [value * _FACTOR for value in rounded])]


def _mix(x: int) -> int:
    """Applies the finaliser of splitmix64 to an unsigned number."""
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & _M64
    x = (x ^ x >> 27) * 0x94D049BB133111EB & _M64
    return x ^ x >> 31
