"""Pages that nobody has: those that were freed, and those that were never used.

A session whose pages lie side by side attends to one slice of the memory, which is quicker than to gather them
(`batch.py`). So pages are handed out in runs where that is possible.
"""

from collections import OrderedDict
from collections.abc import Iterable
from itertools import islice

SCATTERED = 4
"""Freed pages that lie apart are handed out once there are this many times the pages that are asked for. Fewer are left
for later, and untouched pages are handed out instead; but touched memory must not grow for ever."""

NEWEST = 32
"""A run is looked for among the pages that were freed last: this many times the pages that are asked for."""


class FreePages:
    """Numbers of pages, each of them handed out once until it is given back."""

    def __init__(self, num_pages: int) -> None:
        self._num_pages = num_pages
        self._freed: OrderedDict[int, None] = OrderedDict()  # last freed, first used again: touched memory stays small
        self._num_touched = 0  # pages at and above this number have never been used

    def __len__(self) -> int:
        return self._num_pages - self._num_touched + len(self._freed)

    def __contains__(self, page: int) -> bool:
        return page in self._freed or self._num_touched <= page < self._num_pages

    def give(self, pages: Iterable[int]) -> None:
        """These are free again; the last of them is the first to be used again."""
        self._freed.update(dict.fromkeys(pages))

    def take(self, number: int, after: int | None = None, *, in_a_run: bool = False) -> list[int]:
        """Hands out so many pages, at most as many as there are; those that follow page `after` while these are free.

        in_a_run: pages that lie side by side are looked for among those that were freed last, and else among untouched
        ones, unless many more than these are free: what was freed lies scattered between pages that are kept for later.
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
        """Returns whether it was there to be taken; of the untouched pages only the next one is."""
        if page in self._freed:
            del self._freed[page]
            return True
        return page == self._num_touched < self._num_pages and bool(self._touch(1))

    def _touch(self, number: int) -> range:
        first, self._num_touched = self._num_touched, self._num_touched + number
        return range(first, self._num_touched)


def _run(pages: list[int], number: int) -> int | None:
    """Returns the first of `number` pages that follow each other, of pages in ascending order; None if there are none.

    In ascending order pages[i + number - 1] is number - 1 more than pages[i] only where nothing is missing between.
    """
    pairs = zip(pages, pages[number - 1 :], strict=False)
    return next((first for first, last in pairs if last - first == number - 1), None)
