"""What a book of promises comes to, for whoever decides from afar whether one more can be kept beside it.

Knows nothing about who is told.
"""

from collections import Counter

from goodspeed.fleet.replicas import MAX_OWED, MAX_PACES, Owed, Pace
from verify_node.admission.book import Book, Promise
from verify_node.admission.owing import NOBODY, paces

MOST_S = 1e6
"""Times beyond are told as this: nobody plans so far."""


def summary(book: Book, now: float) -> tuple[tuple[Pace, ...], tuple[Owed, ...], int]:
    """The paces of those who decode, the prompts that are owed, what is due first before, and the pages reserved.

    As `decide` sees them, without drafts: a prompt of which the last token at most is held counts as read, and who is
    behind catches up. Of more than MAX_OWED prompts those that are due last are left out; their pages are not.
    Of more than MAX_PACES TPOTs the slowest count as the tightest of them.
    """
    decoding = Counter(way.round_s for way in paces((one for one in book if one.prompt_left <= 1), NOBODY, now))
    tpots = sorted(decoding)
    for slower in tpots[MAX_PACES:]:
        decoding[tpots[MAX_PACES - 1]] += decoding[slower]
    told = tuple(Pace(tpot_s, decoding[tpot_s]) for tpot_s in tpots[:MAX_PACES])
    waiting = sorted((one for one in book if one.prompt_left > 1), key=lambda one: one.due)[:MAX_OWED]
    return told, tuple(_owed(one, now) for one in waiting), book.pages


def _owed(promise: Promise, now: float) -> Owed:
    left_s = max(-MOST_S, min(promise.due - now, MOST_S))
    return Owed(left_s, promise.prompt_left, promise.tpot_s, promise.pages)
