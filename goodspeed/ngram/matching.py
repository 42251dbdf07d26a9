"""Matches of a text's end in earlier texts, and the distribution of what follows them."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Sequence
from typing import NamedTuple

from goodspeed.ngram.chains import BORDER, MAX_ORDER, MIN_ORDER, Found
from goodspeed.ngram.index import GrowingText, NgramIndex


class Matches(NamedTuple):
    """Places whose matches are equally long, as pairs of a token array and the position of the token that followed."""

    order: int  # tokens that match, MIN_ORDER to MAX_ORDER
    places: list[tuple[array[int], int]]


def find(text: GrowingText, histories: Sequence[NgramIndex]) -> list[Matches]:
    """Returns the matches of the text's end, longest first: of each source those at its newest `MAX_PLACES` places."""
    end = text.context()
    if len(end) < MIN_ORDER:
        return []
    found: Found = {}
    text.match(end, found)
    for history in histories:
        history.match(end, found)
    return [Matches(order, found[order]) for order in sorted(found, reverse=True)]


def follow(matches: list[Matches], ahead: int) -> list[list[int]]:
    """Returns the tokens that came `ahead` tokens after each place, by order; `BORDER` where the text had ended."""
    return [[tokens[place + ahead] for tokens, place in level.places] for level in matches]


def survivors(matches: list[Matches], nexts: list[list[int]], token: int) -> list[Matches]:
    """Returns the matches that went on with this token, which is one more token that matches."""
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
    """Returns a distribution of the next token from what followed matches, longest first, and how many of them count.

    What the shares lack to 1 is unknown; tokens that are banned do not count.

    At each order all matches of at least this length count, new ones like old ones: n of them, with some distinct next
    tokens. The order weighs n / (n + distinct / 2); what is left is handed down to the next shorter order that is there
    (Witten and Bell's estimate of what has not been seen yet, halved).
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
