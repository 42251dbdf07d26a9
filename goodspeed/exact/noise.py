"""Counter-based noise: a pure function of seed, role and counters, without a generator or state.

So a draw does not depend on its batch, on restarts, or on the device. Noises of different roles, positions, rounds or
seeds are independent of each other. All steps but the final one use integers, so that all devices agree.
"""

from enum import IntEnum
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_GOLDEN = 0x9E3779B97F4A7C15

_Ints = TypeVar("_Ints", Tensor, NDArray[np.int32], NDArray[np.int64])


class Role(IntEnum):
    """The purpose of a noise; noises of different roles are independent."""

    MATCH = 0
    DRAFT = 1
    ACCEPT = 2
    FINAL = 3


def key(role: Role, *counters: Tensor | int) -> Tensor:
    """Returns a 64-bit hash of role and counters (int64, broadcast): one splitmix64 finaliser per counter."""
    start = _signed((role + 1) * _GOLDEN)
    if any(isinstance(counter, Tensor) and counter.device.type != "cpu" for counter in counters):
        state = torch.tensor(start)
        for counter in counters:
            state = _mix(state ^ counter)
        return state
    hashed = np.array(start)  # for few numbers numpy's calls cost a quarter of torch's
    with np.errstate(over="ignore"):
        for counter in counters:
            hashed = np.asarray(_mix(hashed ^ (counter.numpy() if isinstance(counter, Tensor) else counter)))
    return torch.from_numpy(hashed)


def uniform(seeds: Tensor, role: Role, epochs: Tensor | int, rounds: Tensor | int, positions: Tensor | int) -> Tensor:
    """Returns the ratio rule's noise in [0, 1), fp64 with 53 random bits; the int64 arguments broadcast.

    Of drafting, `seeds` are mixed with the sessions' ids, and `rounds` are the numbers of the draft node's requests to
    its model; else they are the sessions' seeds and the verify node's rounds.
    """
    bits = _shift(key(role, seeds, epochs, rounds, positions), 11)
    return bits.double() * 2.0**-53


def match_noise(seeds: Tensor, positions: Tensor, vocab: int) -> Tensor:
    """Returns the match rule's noise for seeds and positions [rows]: Exp(1), [rows, vocab] fp32.

    Column i depends only on the row's seed and position, and i.
    """
    keys = key(Role.MATCH, seeds, positions)
    return _exponential(keys, torch.arange(vocab, dtype=torch.int32, device=keys.device))


def exponential_at(keys: Tensor, tokens: Tensor) -> Tensor:
    """Returns Exp(1) noise [n] for keys [n] at tokens [n] (int64), one token id per key; see `match_noise`."""
    return _exponential(keys, tokens.to(torch.int32).unsqueeze(1)).squeeze(1)


def _exponential(keys: Tensor, ids: Tensor) -> Tensor:
    """Returns Exp(1) noise for keys [rows] and ids [vocab] or [rows, 1].

    Two rounds of multiply and xor-shift in 32 bits, keyed by both halves of the key. 32 bits for speed: this is the
    largest part of the cost of sampling.
    """
    halves = keys.contiguous().unsqueeze(-1).view(torch.int32)  # [rows, 2]
    x = (
        torch.from_numpy(_scramble(ids.numpy(), halves.numpy()))
        if keys.device.type == "cpu"
        else _scramble(ids, halves)
    )
    # |x + 1/4| takes 2^32 evenly spaced values, precise near 0; scaled to stay below 1 when rounded.
    v = x.to(torch.float32).add_(0.25).abs_().mul_(-(1 - 2.0**-24) * 2.0**-31)
    return v.log1p_().neg_()


def _scramble(ids: _Ints, halves: _Ints) -> _Ints:
    """Returns 32-bit hashes [rows, vocab] of ids [vocab], keyed by halves [rows, 2]."""
    x = (ids * _signed(_GOLDEN, 32)) ^ halves[:, :1]
    x *= halves[:, 1:] | 1
    for multiplier in (0x7FEB352D, 0x846CA68B):  # from Wellons' lowbias32
        shifted = x >> 16
        shifted &= 0xFFFF
        x ^= shifted
        x *= _signed(multiplier, 32)
    return x


def _mix(x: _Ints) -> _Ints:
    x = (x ^ _shift(x, 30)) * _signed(0xBF58476D1CE4E5B9)
    x = (x ^ _shift(x, 27)) * _signed(0x94D049BB133111EB)
    return x ^ _shift(x, 31)


def _shift(x: _Ints, bits: int) -> _Ints:
    """Returns a logical (unsigned) right shift of 64 bits."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _signed(bits: int, width: int = 64) -> int:
    """Returns the signed integer with the lowest `width` bits of `bits`."""
    bits &= (1 << width) - 1
    return bits - ((bits >> (width - 1)) << width)
