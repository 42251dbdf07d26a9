"""The C largest terms of many falling arithmetic sequences, found by their price instead of a heap.

Term s = 1, 2, ..., cap of sequence i is `level[i] + s * slope[i]`, slope <= 0, computed in float64 by exactly this
formula. The price is the C-th largest term of all. The search narrows a bracket around it until few terms remain, and
sorts these.
"""

import numpy as np

from goodspeed.fair.policies.base import Floats, Ints

FEW = 1 << 13  # terms up to which selecting is cheaper than narrowing further; measured
SMALL = 1e-200  # replaces a slope of 0 as a divisor


def largest_terms(level: Floats, slope: Floats, caps: Ints, num: int) -> tuple[Ints, Ints]:
    """Returns each sequence's number of terms above the price, and of terms exactly at it, int64 [sequences] each.

    The first sum to less than `num`, both together to `num` or more. Needs 1 <= num < sum(caps).
    """
    above, tied = np.zeros(caps.size, dtype=np.int64), np.zeros(caps.size, dtype=np.int64)
    index = np.flatnonzero(caps)
    level, slope, most = level[index], slope[index], caps[index].astype(np.float64)
    least = np.zeros_like(most)  # `least`: terms known to be above the price; `most`: terms that may reach it
    step = 1.0
    while (most - least).sum() > FEW:
        top, bottom = (level + (least + 1) * slope).max(), (level + most * slope).min()
        if top == bottom:
            break
        price = _between(bottom, top, step)
        lengths = _count(level, slope, least, most, price)
        if (lengths - least).sum() >= num:
            most = lengths
        else:
            num -= int((lengths - least).sum())
            least, step = lengths, 2 * step
        open_ = most > least
        above[index[~open_]] = least[~open_]
        index, level, slope = index[open_], level[open_], slope[open_]
        least, most = least[open_], most[open_]
    above[index], tied[index] = _select(level, slope, least, most, num)
    return above, tied


def _between(bottom: float, top: float, step: float) -> float:
    """Returns the next price to try, bottom < price <= top: near the top at first, as caps may reach very far down."""
    price = max(top - step, top / 2 + bottom / 2)
    return price if price > bottom else top


def _count(level: Floats, slope: Floats, least: Floats, most: Floats, price: float) -> Floats:
    """Counts each sequence's terms of `price` or more, within bounds; exact in spite of the division."""
    lengths = np.clip(np.floor((level - price) / np.maximum(-slope, SMALL)), least, most)
    too_many = (level + lengths * slope < price) & (lengths > least)
    too_few = (level + (lengths + 1) * slope >= price) & (lengths < most)
    wrong = np.flatnonzero(too_many | too_few)
    if wrong.size:
        lengths[wrong] = _bisect(level[wrong], slope[wrong], least[wrong], most[wrong], price)
    return lengths


def _bisect(level: Floats, slope: Floats, low: Floats, high: Floats, price: float) -> Floats:
    while (low < high).any():
        middle = np.floor((low + high + 1) / 2)
        reached = level + middle * slope >= price
        low, high = np.where(reached, middle, low), np.where(reached, high, middle - 1)
    return low


def _select(level: Floats, slope: Floats, least: Floats, most: Floats, num: int) -> tuple[Ints, Ints]:
    """Returns the counts above and at the price among the remaining terms, least+1 .. most of each sequence."""
    counts, base = (most - least).astype(np.int64), least.astype(np.int64)
    total = int(counts.sum())
    if total > FEW:  # all open terms are one tie
        return base, counts
    owner = np.repeat(np.arange(counts.size), counts)
    nth = np.arange(1, total + 1) - np.repeat(np.cumsum(counts) - counts, counts)
    terms = level[owner] + (least[owner] + nth) * slope[owner]
    price = np.partition(terms, total - num)[total - num]
    above = np.bincount(owner[terms > price], minlength=counts.size)
    return base + above, np.bincount(owner[terms == price], minlength=counts.size)
