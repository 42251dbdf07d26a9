"""Tracks free pages: freed pages and never used ones.

A session with contiguous pages attends to one slice of the KV cache, which is faster than gathering pages (`batch.py`).
So pages are handed out in contiguous runs where possible.
"""

from collections import OrderedDict
from collections.abc import Iterable
from itertools import islice

SCATTERED = 4
"""Scattered freed pages are handed out once there are this many times the number requested. With fewer, untouched pages
are handed out instead. The limit bounds the growth of touched memory."""

NEWEST = 32
"""The search for a run covers this many times the requested pages, the most recently freed ones."""


class FreePages:
    """Page numbers; each is handed out once until it is given back."""

    def __init__(self, num_pages: int) -> None:
        self._num_pages = num_pages
        self._freed: OrderedDict[int, None] = OrderedDict()  # latest freed, first reused: touched memory stays small
        self._num_touched = 0  # pages at and above this number have never been used

    def __len__(self) -> int:
        return self._num_pages - self._num_touched + len(self._freed)

    def give(self, pages: Iterable[int]) -> None:
        """Frees pages; the final one is reused first."""
        self._freed.update(dict.fromkeys(pages))

    def take(self, number: int, after: int | None = None, *, in_a_run: bool = False) -> list[int]:
        """Hands out `number` free pages, beginning with those that follow page `after` while these are free.

        number: at most the number of free pages. in_a_run: searches contiguous pages among the most recently freed,
        then among the untouched, unless many freed pages exist (SCATTERED), which are scattered.
        """
        pages: list[int] = []
        while after is not None and len(pages) < number and self._take_one(after + 1):
            pages.append(after := after + 1)
        number -= len(pages)
        run = self._take_run(number) if in_a_run else None
        if run is not None:
            return [*pages, *run]
        num_again = min(number, len(self._freed))
        pages += [self._freed.popitem()[0] for _ in range(num_again)]
        return [*pages, *self._touch(number - num_again)]

    def _take_run(self, number: int) -> range | None:
        newest = islice(reversed(self._freed), NEWEST * number)
        first = _run(sorted(newest), number) if 1 < number <= len(self._freed) else None
        if first is not None:
            for page in range(first, first + number):
                del self._freed[page]
            return range(first, first + number)
        may_touch = number <= self._num_pages - self._num_touched and len(self._freed) < SCATTERED * number
        return self._touch(number) if may_touch else None

    def _take_one(self, page: int) -> bool:
        """Takes a page if it is free, and returns True if so. Of the untouched pages only the next one can be taken."""
        if page in self._freed:
            del self._freed[page]
            return True
        return page == self._num_touched < self._num_pages and bool(self._touch(1))

    def _touch(self, number: int) -> range:
        first, self._num_touched = self._num_touched, self._num_touched + number
        return range(first, self._num_touched)


def _run(pages: list[int], number: int) -> int | None:
    """Returns the first of `number` consecutive pages among ascending `pages`; None if there is no such run.

    Pages i to i + number - 1 are consecutive exactly if pages[i + number - 1] - pages[i] is number - 1.
    """
    pairs = zip(pages, pages[number - 1 :], strict=False)
    return next((first for first, last in pairs if last - first == number - 1), None)
