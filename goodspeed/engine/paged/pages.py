"""A paged pool's bookkeeping: which session owns which page of key/value memory.

Knows nothing about tensors, models or rounds: a key is any hashable name of a session, a page is a number. Position p
of a session lies in its page number p // page_size, at row p % page_size. Every operation costs the pages it touches.
"""

from collections.abc import Hashable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from goodspeed.errors import PoolExhausted

Pages = NDArray[np.int64]


class PagePool:
    """Pages owned by sessions; the first `extend` of a key opens its session."""

    def __init__(self, num_pages: int, page_size: int = 16) -> None:
        if num_pages < 1 or page_size < 1:
            raise ValueError(f"a pool needs pages and rows: num_pages={num_pages}, page_size={page_size}")
        self.num_pages = num_pages
        self.page_size = page_size
        self._freed: list[int] = []  # last freed, first used again: touched memory stays small
        self._num_touched = 0  # pages at and above this number have never been used
        self._lengths: dict[Hashable, int] = {}
        self._tables: dict[Hashable, Pages] = {}  # grown by doubling; only the first `_num_owned` entries count

    def __contains__(self, key: Hashable) -> bool:
        return key in self._lengths

    def __iter__(self) -> Iterator[Hashable]:
        """The sessions that it knows."""
        return iter(self._lengths)

    @property
    def num_free(self) -> int:
        """Number of pages that no session owns."""
        return self.num_pages - self._num_touched + len(self._freed)

    def length(self, key: Hashable) -> int:
        """Tokens cached for a session; 0 when it is unknown."""
        return self._lengths.get(key, 0)

    def pages_needed(self, key: Hashable, num_tokens: int) -> int:
        """Number of free pages that `extend(key, num_tokens)` would take."""
        length = self._lengths.get(key, 0)
        return self._num_owned(length + num_tokens) - self._num_owned(length)

    def table(self, key: Hashable) -> Pages:
        """Returns a session's pages in order of position [num_owned]: a view, valid until the pool changes."""
        return self._tables[key][: self._num_owned(self._lengths[key])]

    def slots(self, key: Hashable, positions: Sequence[int]) -> Pages:
        """Returns the pool's rows of some of a session's positions: page * page_size + row in the page."""
        page, row = np.divmod(np.array(positions, np.int64), self.page_size)
        slots: Pages = self.table(key)[page] * self.page_size + row
        return slots

    def extend(self, key: Hashable, num_tokens: int) -> None:
        """Appends room for tokens. Raises PoolExhausted, and changes nothing, when too few pages are free."""
        if num_tokens < 0:
            raise ValueError(f"cannot extend by {num_tokens} tokens; truncate shortens")
        num_new = self.pages_needed(key, num_tokens)
        if num_new > self.num_free:
            raise PoolExhausted(
                f"{num_new} pages are needed and {self.num_free} of {self.num_pages} are free; "
                "free a session, or start with more memory"
            )
        length = self._lengths.get(key, 0)
        if num_new:
            self._append(key, self._num_owned(length), self._take(num_new))
        elif key not in self._tables:
            self._tables[key] = np.empty(0, np.int64)
        self._lengths[key] = length + num_tokens

    def truncate(self, key: Hashable, length: int) -> None:
        """Forgets a session's positions from `length` on; pages that become empty become free."""
        old = self._lengths.get(key, 0)
        if not 0 <= length <= old:
            raise ValueError(f"cannot truncate to {length}: {old} positions are cached")
        if key not in self._lengths:
            return
        kept, owned = self._num_owned(length), self._num_owned(old)
        if kept < owned:
            self._freed.extend(self._tables[key][kept:owned][::-1].tolist())
        self._lengths[key] = length

    def free(self, key: Hashable) -> None:
        """Forgets a session; does nothing for an unknown one."""
        if key in self._lengths:
            self.truncate(key, 0)
            del self._lengths[key], self._tables[key]

    def _num_owned(self, length: int) -> int:
        return -(-length // self.page_size)

    def _take(self, num_pages: int) -> list[int]:
        num_again = min(num_pages, len(self._freed))
        pages = self._freed[len(self._freed) - num_again :][::-1]
        del self._freed[len(self._freed) - num_again :]
        first, self._num_touched = self._num_touched, self._num_touched + num_pages - num_again
        return pages + list(range(first, self._num_touched))

    def _append(self, key: Hashable, num_owned: int, pages: list[int]) -> None:
        table = self._tables.get(key)
        num_after = num_owned + len(pages)
        if table is None or len(table) < num_after:
            grown = np.empty(max(8, 2 * num_after), np.int64)
            if table is not None:
                grown[:num_owned] = table[:num_owned]
            self._tables[key] = table = grown
        table[num_owned:num_after] = pages
