"""Token arrays with a hash from two tokens to the places where they occurred.

A place is the position of the token that followed. As in LZ77 compressors, a table of buckets holds each bucket's
newest place, and an array beside the tokens the place before each place: 8 bytes a token, 4 bytes a bucket, no object.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TypeAlias

BORDER = -1
"""Stands before and after every text; no token id, so no match runs over it."""

UNKNOWN = -2
"""Stands for what is before a text's first token; it is nowhere in a token array."""

MIN_ORDER = 2
"""Tokens that are looked up; a shorter match says too little."""

MAX_ORDER = 16
"""Tokens of a match that are compared; a longer match says nothing more."""

MAX_PLACES = 32
"""Newest places of a chain that are returned: further ones cost time and change the blend by little."""

MAX_STEPS = 64
"""Places of a chain that are looked at: places of other tokens in the same bucket cannot make a search long."""

Found: TypeAlias = dict[int, list[tuple["array[int]", int]]]
"""Places by the number of tokens that match before them: token arrays, and the position of the token that followed."""


class Chains:
    """One array of tokens, and for every two tokens in a row the chain of the places that they lead to."""

    __slots__ = ("_before", "_mask", "_newest", "tokens")

    def __init__(self, num_buckets: int) -> None:
        """`num_buckets` is rounded up to a power of two; about one for each token that is expected."""
        size = 1 << max(num_buckets - 1, 63).bit_length()
        self._mask = size - 1
        self._newest = array("i", bytes(4 * size))  # [bucket] place; 0 for none
        self.tokens = array("i", (BORDER,))
        self._before = array("i", (0,))  # [place] the place before it in its bucket; 0 for none

    @property
    def num_buckets(self) -> int:
        return self._mask + 1

    @property
    def num_bytes(self) -> int:
        return 4 * (len(self._newest) + len(self.tokens) + len(self._before))

    def append(self, tokens: Sequence[int]) -> None:
        """Appends tokens to the last text, in about 0.3 us each."""
        first, second = self.tokens[-2] if len(self.tokens) > 1 else BORDER, self.tokens[-1]
        place, mask = len(self.tokens), self._mask
        newest, before = self._newest, self._before
        self.tokens.extend(tokens)
        for token in tokens:
            if first >= 0 and second >= 0:
                bucket = (first * 0x9E3779B1 ^ second * 0x85EBCA77) >> 8 & mask
                before.append(newest[bucket])
                newest[bucket] = place
            else:
                before.append(0)
            first, second = second, token
            place += 1

    def end_text(self) -> None:
        """Ends the last text: what is appended next belongs to another one."""
        self.tokens.append(BORDER)
        self._before.append(0)

    def match(self, end: array[int], oldest: int, max_places: int, found: Found) -> int:
        """Adds the newest places that follow the last tokens of `end`, by how many of these match; returns how many.

        `end` has MIN_ORDER to MAX_ORDER tokens of a text; places before `oldest` do not count.
        """
        tokens, before, length = self.tokens, self._before, len(end)
        fourth, third, second, last = (array("i", (UNKNOWN, UNKNOWN)) + end)[-4:]
        place = self._newest[(second * 0x9E3779B1 ^ last * 0x85EBCA77) >> 8 & self._mask]
        num_left = max_places
        for _ in range(MAX_STEPS):
            if place <= oldest:
                break
            if tokens[place - 1] == last and tokens[place - 2] == second:
                if tokens[place - 3] != third:
                    order = 2
                elif tokens[place - 4] != fourth:
                    order = 3
                elif tokens[place - length : place] == end:  # a match of four is most often a long one
                    order = length
                else:
                    order = _order(tokens, place, end)
                if order in found:
                    found[order].append((tokens, place))
                else:
                    found[order] = [(tokens, place)]
                num_left -= 1
                if not num_left:
                    break
            place = before[place]
        return max_places - num_left


def _order(tokens: array[int], place: int, end: array[int]) -> int:
    """Returns how many tokens before a place are those of `end`, of which the first is not the same."""
    order = 4
    while tokens[place - 1 - order] == end[-1 - order]:
        order += 1
    return order
