"""Matches of a text's end in earlier texts, and the distribution of the next tokens."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Sequence
from typing import NamedTuple

from goodspeed.ngram.chains import BORDER, MAX_ORDER, MIN_ORDER, Found
from goodspeed.ngram.index import GrowingText, NgramIndex


class Matches(NamedTuple):
    """Matches of equal length. places: token arrays, and the position of the token after the match."""

    order: int  # match length in tokens, MIN_ORDER to MAX_ORDER
    places: list[tuple[array[int], int]]


def find(text: GrowingText, histories: Sequence[NgramIndex]) -> list[Matches]:
    """Returns the matches of the text's end, longest first; from each source at most the newest `MAX_PLACES`."""
    end = text.end(MAX_ORDER)
    if len(end) < MIN_ORDER:
        return []
    found: Found = {}
    text.match(end, found)
    for history in histories:
        history.match(end, found)
    return [Matches(order, found[order]) for order in sorted(found, reverse=True)]


def follow(matches: list[Matches], ahead: int) -> list[list[int]]:
    """Returns the token at each place + ahead, by order; `BORDER` after a text's end."""
    return [[tokens[place + ahead] for tokens, place in level.places] for level in matches]


def survivors(matches: list[Matches], nexts: list[list[int]], token: int) -> list[Matches]:
    """Returns the matches that continued with this token, with their order increased by one."""
    found = []
    for level, followed in zip(matches, nexts, strict=True):
        num_alike = followed.count(token)
        if num_alike == len(followed):
            found.append(Matches(min(level.order + 1, MAX_ORDER), level.places))
        elif num_alike:
            places = [place for place, other in zip(level.places, followed, strict=True) if other == token]
            found.append(Matches(min(level.order + 1, MAX_ORDER), places))
    return found


def blend(nexts: list[list[int]], banned: Collection[int] = ()) -> tuple[dict[int, float], int]:
    """Returns each next token's share, and the number of matches counted. nexts: next tokens by order, longest first.

    The shares sum to less than 1; the rest is the probability of unseen tokens. Banned tokens and text ends do not
    count.

    Each order counts all n matches of at least its length, regardless of age. Its weight is n / (n + distinct / 2),
    where `distinct` is the number of distinct next tokens. The remaining weight goes to the next shorter order (Witten
    and Bell's estimate of unseen events, halved).
    """
    counts: dict[int, int] = {}
    shares: dict[int, float] = {}
    rest = 1.0
    n = 0
    for level in nexts:
        n += len(level)
        if level.count(level[0]) == len(level):
            counts[level[0]] = counts.get(level[0], 0) + len(level)
        else:
            for token in level:
                counts[token] = counts.get(token, 0) + 1
        n -= counts.pop(BORDER, 0)
        for token in banned:
            n -= counts.pop(token, 0)
        if not n:
            continue
        unseen = 0.5 * len(counts)
        weight = rest / (n + unseen)
        for token, count in counts.items():
            shares[token] = shares.get(token, 0.0) + weight * count
        rest *= unseen / (n + unseen)
    return shares, n
