"""A hash index of a token array, from each pair of tokens to the places that follow its occurrences.

A place is the position of the token after the pair. As in LZ77 compressors, a table holds the newest place of each
bucket, and an array parallel to the tokens links each place to the previous one of its bucket. Memory: 8 bytes per
token, 4 bytes per bucket, no objects.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TypeAlias

BORDER = -1
"""Marker before and after every text; not a token id, so that no match crosses it."""

UNKNOWN = -2
"""Placeholder for tokens before a text's beginning; never in a token array."""

MIN_ORDER = 2
"""Length of the n-gram looked up; a shorter match is too weak."""

MAX_ORDER = 16
"""Most tokens of a match that are compared; a longer match adds no information."""

MAX_PLACES = 32
"""Most places returned, newest first: more cost time and hardly change the blend."""

MAX_STEPS = 64
"""Most places of a chain that are visited: bounds the search if other pairs share the bucket."""

Found: TypeAlias = dict[int, list[tuple["array[int]", int]]]
"""Places by match length in tokens; a place is a token array, and the position of the token after the match."""


class Chains:
    """One token array, with a chain of places for each bucket of token pairs."""

    __slots__ = ("_before", "_mask", "_newest", "tokens")

    def __init__(self, num_buckets: int) -> None:
        """num_buckets: about the expected number of tokens; rounded up to a power of two."""
        size = 1 << max(num_buckets - 1, 63).bit_length()
        self._mask = size - 1
        self._newest = array("i", bytes(4 * size))  # [bucket] place; 0 for none
        self.tokens = array("i", (BORDER,))
        self._before = array("i", (0,))  # [place] previous place of the same bucket; 0 for none

    @property
    def num_buckets(self) -> int:
        return self._mask + 1

    def append(self, tokens: Sequence[int]) -> None:
        """Appends tokens to the current text, in about 0.3 us each."""
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
        """Ends the current text: tokens appended later belong to a new one."""
        self.tokens.append(BORDER)
        self._before.append(0)

    def match(self, end: array[int], oldest: int, max_places: int, found: Found) -> int:
        """Adds the newest places whose preceding tokens match those of `end`, by match length; returns how many.

        end: final MIN_ORDER to MAX_ORDER tokens of a text. oldest: places up to this one are ignored.
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
                elif tokens[place - length : place] == end:  # most matches of four tokens are full matches
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
    """Returns the match length at a place, at least 4, where `end` does not match in full."""
    order = 4
    while tokens[place - 1 - order] == end[-1 - order]:
        order += 1
    return order
