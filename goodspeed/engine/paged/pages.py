"""A paged pool's bookkeeping: which session owns which KV page, and which pages sessions share.

Position p of a session is in page p // page_size of its table, at row p % page_size. The cost of an operation is
proportional to the pages it touches.

With a prefix cache, full pages can be published under their text (`prefix_cache.py`). A session that begins with the
same text adopts the pages. Published pages outlive their sessions until the pool needs room. Only full pages are
shared, and nothing writes into them: a session truncated into a shared page gives up that whole page.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from goodspeed.engine.paged.prefix_cache import Chain, Hasher, Hit, PrefixCache
from goodspeed.errors import PoolExhausted

Pages = NDArray[np.int64]

WORTH_WAITING = 2
"""Fewest full pages of remaining prefill for which a session waits for another to prefill them: a wait costs a
round."""


class PagePool:
    """Pages owned by sessions; the first `extend` or `adopt` of a key opens its session."""

    def __init__(
        self, num_pages: int, page_size: int = 16, *, prefix_cache: bool = False, max_unused: int | None = None
    ) -> None:
        """prefix_cache: pages can be published. max_unused: published pages retained without a session; None: all."""
        if num_pages < 1 or page_size < 1:
            raise ValueError(f"a pool needs pages and rows: num_pages={num_pages}, page_size={page_size}")
        self.num_pages = num_pages
        self.page_size = page_size
        self.has_prefix_cache = prefix_cache
        self.max_unused = num_pages if max_unused is None else max_unused
        self._freed: list[int] = []  # latest freed, first reused: touched memory stays small
        self._num_touched = 0  # pages at and above this number have never been used
        self._prefix_cache = PrefixCache()
        self._hasher = Hasher(page_size)
        self._chains: dict[Hashable, Chain] = {}  # also of sessions that wait for pages
        self._lengths: dict[Hashable, int] = {}
        self._tables: dict[Hashable, Pages] = {}  # grown by doubling; only the first `_num_owned` entries count

    def __contains__(self, key: Hashable) -> bool:
        return key in self._lengths

    def __iter__(self) -> Iterator[Hashable]:
        """Iterates over the keys of open sessions."""
        return iter(self._lengths)

    @property
    def num_free(self) -> int:
        """Number of pages that no session owns, including published ones."""
        return self._num_empty + self._prefix_cache.num_unused

    @property
    def num_unused(self) -> int:
        """Number of free pages that hold published text; they are handed out only when no other page is free."""
        return self._prefix_cache.num_unused

    def length(self, key: Hashable) -> int:
        """Returns the number of tokens cached for a session; 0 if unknown."""
        return self._lengths.get(key, 0)

    def pages_needed(self, key: Hashable, num_tokens: int) -> int:
        """Returns the number of free pages that `extend(key, num_tokens)` would take."""
        length = self._lengths.get(key, 0)
        return self._num_owned(length + num_tokens) - self._num_owned(length)

    def check_free(self, number: int) -> None:
        """Raises PoolExhausted if fewer pages are free."""
        if number > self.num_free:
            raise PoolExhausted(
                f"{number} pages are needed, but {self.num_free} of {self.num_pages} are free; "
                "free a session, or start with more memory"
            )

    def table(self, key: Hashable) -> Pages:
        """Returns a session's pages in order of position [num_owned]: a view, valid until the pool changes."""
        return self._tables[key][: self._num_owned(self._lengths[key])]

    def slots(self, key: Hashable, positions: Sequence[int]) -> Pages:
        """Returns the pool rows of a session's positions: page * page_size + row in the page."""
        page, row = np.divmod(np.array(positions, np.int64), self.page_size)
        slots: Pages = self.table(key)[page] * self.page_size + row
        return slots

    def extend(self, key: Hashable, num_tokens: int) -> None:
        """Allocates room for more tokens. Raises PoolExhausted, and changes nothing, when too few pages are free."""
        if num_tokens < 0:
            raise ValueError(f"cannot extend by {num_tokens} tokens; truncate shortens")
        num_new = self.pages_needed(key, num_tokens)
        self.check_free(num_new)
        length = self._lengths.get(key, 0)
        if num_new:
            self._append(key, self._num_owned(length), self._take(num_new))
        elif key not in self._tables:
            self._tables[key] = np.empty(0, np.int64)
        self._lengths[key] = length + num_tokens

    def truncate(self, key: Hashable, length: int) -> int:
        """Drops a session's positions from `length` on and frees the emptied pages. Returns the remaining length.

        Less than `length` remains where `length` lies within a shared page: nothing may write into a shared page, so
        the session gives up the whole page.
        """
        old = self._lengths.get(key, 0)
        if not 0 <= length <= old:
            raise ValueError(f"cannot truncate to {length}: {old} positions are cached")
        if key not in self._lengths:
            self._chains.pop(key, None)
            return 0
        if length < old:
            length = self._writable(key, length)
            kept, owned = self._num_owned(length), self._num_owned(old)
            if kept < owned:
                self._release(self._tables[key][kept:owned].tolist())
            self._lengths[key] = length
        self._cut_chain(key, length // self.page_size)
        return length

    def free(self, key: Hashable) -> None:
        """Closes a session; does nothing for an unknown one. Its published pages are retained until room is needed."""
        self._chains.pop(key, None)
        if key in self._lengths:
            self._release(self.table(key).tolist())
            del self._lengths[key], self._tables[key]

    # -- prefix cache ----------------------------------------------------------------------------------------------

    def digests(self, key: Hashable, scope: bytes, tokens: Sequence[int]) -> Sequence[bytes]:
        """Returns the digests of a text's full pages; empty without a prefix cache or a scope.

        tokens: the session's text; continues the text of the previous call, unless the session was truncated since.
        """
        if not self.has_prefix_cache or not scope:
            return ()
        return self._hasher.reach(self._chain(key, scope), tokens, len(tokens) // self.page_size)

    def find(self, key: Hashable, scope: bytes, tokens: Sequence[int]) -> Hit:
        """Returns the published pages that a session without pages may begin with.

        Whole pages only, never the final token of the text. scope: group of sessions that share pages; a page is never
        found from another scope. The result is valid until the pool changes.
        """
        digests = self.digests(key, scope, tokens)
        pages = self._prefix_cache.find(digests[: max(0, len(tokens) - 1) // self.page_size])
        return Hit(tuple(pages), len(pages) * self.page_size, self._prefix_cache.num_unused_of(pages))

    def upcoming(self, key: Hashable, scope: bytes, tokens: Sequence[int]) -> bytes | None:
        """Returns a digest that names the next pages that a session has to prefill.

        Other sessions may wait for these pages instead of prefilling them. None if fewer than WORTH_WAITING full pages
        remain before the final token, or without a prefix cache.
        """
        length = self.length(key)
        if not self.has_prefix_cache or len(tokens) - length <= WORTH_WAITING * self.page_size:
            return None
        if key not in self._lengths:
            length = self.find(key, scope, tokens).num_tokens
        place = length // self.page_size + WORTH_WAITING - 1
        digests = self.digests(key, scope, tokens)
        return digests[place] if place < (len(tokens) - 1) // self.page_size and digests else None

    def adopt(self, key: Hashable, hit: Hit) -> None:
        """Opens a session with the pages that `find` returned. ValueError if it is open, or if a page was evicted."""
        if key in self._lengths:
            raise ValueError(f"session {key!r} already has pages; only a session without pages can adopt some")
        if not all(map(self._prefix_cache.is_kept, hit.pages)):
            raise ValueError("a found page is no longer published; call find again after the pool has changed")
        for page in hit.pages:
            self._prefix_cache.hold(page)
        self._tables[key] = np.array(hit.pages, np.int64)
        self._lengths[key] = hit.num_tokens
        if key in self._chains:
            self._chains[key].num_published = len(hit.pages)

    def publish(self, key: Hashable, scope: bytes, tokens: Sequence[int]) -> None:
        """Publishes a session's full pages in the prefix cache."""
        num_full = min(self.length(key), len(tokens)) // self.page_size
        if not self.has_prefix_cache or not scope or not num_full:
            return
        chain = self._chain(key, scope)
        first = chain.num_published
        if first >= num_full:
            return
        digests = self._hasher.reach(chain, tokens, num_full)
        for place, page in enumerate(self._tables[key][first:num_full].tolist(), first):
            self._prefix_cache.publish(page, digests[place])
        chain.num_published = num_full

    def withdraw(self, key: Hashable) -> None:
        """Removes a session's pages from the prefix cache, because their contents are not trusted."""
        if key in self._lengths:
            for page in self.table(key).tolist():
                self._prefix_cache.withdraw(page)

    def forget(self, key: Hashable, scope: bytes, tokens: Sequence[int]) -> None:
        """Removes a text from the prefix cache, also the pages that its session has given up. scope: no other's."""
        pages = self._prefix_cache.find(self.digests(key, scope, tokens))
        self.withdraw(key)
        for page in pages:
            if self._prefix_cache.drop_unused(page):
                self._freed.append(page)

    def references(self, page: int) -> int:
        return self._prefix_cache.references(page)

    def withdraw_all(self, keys: Sequence[Hashable]) -> Pages:
        """Withdraws several sessions' pages; returns those that no other session has."""
        for key in keys:
            self.withdraw(key)
        pages, counts = np.unique(np.concatenate([self.table(key) for key in keys]), return_counts=True)
        own: Pages = pages[counts == [self.references(page) for page in pages.tolist()]]
        return own

    def owned(self, keys: Sequence[Hashable], others: Iterable[Hashable] = (), beside: Sequence[int] = ()) -> list[int]:
        """Returns each session's number of pages; a shared page counts only for the first session that has it.

        Sessions freed in reverse order thus free these numbers of pages. others: sessions that stay open; their pages
        are not counted. beside: further pages that are not counted.
        """
        tables = [self.table(key) for key in keys]
        if not self._prefix_cache.has_shared and not beside:
            return [len(table) for table in tables]
        taken = [np.array(beside, np.int64), *(self.table(key) for key in others)]
        parts = [np.concatenate(taken), *tables]
        first = np.unique(np.concatenate(parts), return_index=True)[1]
        ends = np.cumsum([len(part) for part in parts])
        counts = np.bincount(np.searchsorted(ends, first, side="right"), minlength=len(parts))
        return [int(count) for count in counts[1:]]

    @property
    def _num_empty(self) -> int:
        return self.num_pages - self._num_touched + len(self._freed)

    def _num_owned(self, length: int) -> int:
        return -(-length // self.page_size)

    def _chain(self, key: Hashable, scope: bytes) -> Chain:
        chain = self._chains.get(key)
        if chain is None or chain.scope != scope:
            self._chains[key] = chain = self._hasher.begin(scope)
        return chain

    def _cut_chain(self, key: Hashable, num_pages: int) -> None:
        chain = self._chains.get(key)
        if chain is not None:
            del chain.digests[num_pages:]
            chain.num_published = min(chain.num_published, num_pages)

    def _writable(self, key: Hashable, length: int) -> int:
        """Returns `length`, or the start of its page if shared; unpublishes an unshared page that `length` cuts."""
        place, row = divmod(length, self.page_size)
        if row:
            page = int(self._tables[key][place])
            if self._prefix_cache.references(page) > 1:
                return length - row
            self._prefix_cache.withdraw(page)
        return length

    def _release(self, pages: list[int]) -> None:
        """Releases pages, a text's final page for eviction first: more texts share its beginning."""
        self._freed += [page for page in reversed(pages) if self._prefix_cache.release(page)]
        self._evict(self._prefix_cache.num_unused - self.max_unused)

    def _evict(self, number: int) -> None:
        if number > 0:
            self._freed += self._prefix_cache.evict(number)

    def _take(self, number: int) -> list[int]:
        self._evict(number - self._num_empty)
        again, first = min(number, len(self._freed)), self._num_touched
        self._num_touched += number - again
        return [*(self._freed.pop() for _ in range(again)), *range(first, self._num_touched)]

    def _append(self, key: Hashable, num_owned: int, pages: list[int]) -> None:
        table = self._tables.get(key)
        num_after = num_owned + len(pages)
        if table is None or len(table) < num_after:
            grown = np.empty(max(8, 2 * num_after), np.int64)
            if table is not None:
                grown[:num_owned] = table[:num_owned]
            self._tables[key] = table = grown
        table[num_owned:num_after] = pages
