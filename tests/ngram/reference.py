"""Matching as plainly as it can be written: every place of every text is looked at."""

from collections.abc import Sequence

from goodspeed.ngram.chains import MAX_ORDER, MAX_PLACES, MIN_ORDER
from goodspeed.ngram.index import NgramIndex


def texts_of(index: NgramIndex) -> list[list[int]]:
    """Returns the texts of an index, oldest first."""
    found = []
    for segment in index._segments:
        start = segment.oldest
        for length in segment.lengths:
            found.append(segment.chains.tokens[start : start + length].tolist())
            start += length + 1
    return found


def order(text: Sequence[int], earlier: Sequence[int], place: int) -> int:
    """Returns how many tokens before a place of an earlier text are the last ones of `text`."""
    longest = min(len(text), place, MAX_ORDER)
    return next((n for n in range(longest, 0, -1) if list(text[-n:]) == list(earlier[place - n : place])), 0)


def nexts(text: Sequence[int], texts: Sequence[Sequence[int]]) -> dict[int, list[int]]:
    """Returns what followed the newest matches of the text's end, by order, newest first. The newest text is last."""
    found: dict[int, list[int]] = {}
    num_left = MAX_PLACES
    for earlier in reversed(texts):
        for place in range(len(earlier) - 1, -1, -1):
            matched = order(text, earlier, place)
            if matched >= MIN_ORDER and num_left:
                found.setdefault(matched, []).append(earlier[place])
                num_left -= 1
    return found


def shares(by_order: dict[int, list[int]], banned: Sequence[int] = ()) -> dict[int, float]:
    """The blend of all orders, from the shortest up."""
    blended: dict[int, float] = {}
    for least in sorted(by_order):
        seen = [token for n, level in by_order.items() if n >= least for token in level if token not in banned]
        if seen:
            weight = len(seen) / (len(seen) + len(set(seen)) / 2)
            blended = {
                token: weight * seen.count(token) / len(seen) + (1 - weight) * blended.get(token, 0.0)
                for token in {*seen, *blended}
            }
    return blended
