"""A paged pool's bookkeeping: which session owns which page of key/value memory, and which pages texts share.

Position p of a session lies in its page number p // page_size, at row p % page_size. Every operation costs the pages it
touches, and now and then those of a larger eviction (EVICTED_SHARE).

With a prefix cache, full pages can be published under their text (`prefix_cache.py`). A session that begins with the
same text adopts them, and they outlive the sessions that have them until their room is needed. Only full pages are
shared, and nobody writes in them: a session that is cut back into a shared page gives it up whole.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from goodspeed.engine.paged.free_pages import FreePages
from goodspeed.engine.paged.prefix_cache import Chain, Hasher, Hit, PrefixCache
from goodspeed.errors import PoolExhausted

Pages = NDArray[np.int64]

EVICTED_SHARE = 64
"""A 64th of the pool is evicted at a time, so that the room that it leaves lies side by side as far as it can."""

WORTH_WAITING = 2
"""Pages that have to be left to read for a session to wait for another that reads them: a wait costs a round."""


class PagePool:
    """Pages owned by sessions; the first `extend` or `adopt` of a key opens its session."""

    def __init__(
        self, num_pages: int, page_size: int = 16, *, prefix_cache: bool = False, max_unused: int | None = None
    ) -> None:
        """prefix_cache: pages can be published. max_unused: that are kept without a session; None: all."""
        if num_pages < 1 or page_size < 1:
            raise ValueError(f"a pool needs pages and rows: num_pages={num_pages}, page_size={page_size}")
        self.num_pages = num_pages
        self.page_size = page_size
        self.has_prefix_cache = prefix_cache
        self.max_unused = num_pages if max_unused is None else max_unused
        self._free = FreePages(num_pages)
        self._prefix_cache = PrefixCache()
        self._hasher = Hasher(page_size)
        self._chains: dict[Hashable, Chain] = {}  # also of sessions that wait for memory
        self._lengths: dict[Hashable, int] = {}
        self._tables: dict[Hashable, Pages] = {}  # grown by doubling; only the first `_num_owned` entries count

    def __contains__(self, key: Hashable) -> bool:
        return key in self._lengths

    def __iter__(self) -> Iterator[Hashable]:
        """The sessions that it knows."""
        return iter(self._lengths)

    @property
    def num_free(self) -> int:
        """Number of pages that no session owns, those that are kept for later ones included."""
        return len(self._free) + self._prefix_cache.num_unused

    @property
    def num_unused(self) -> int:
        """Number of free pages that are kept: they hold texts, and are given away only when there are no others."""
        return self._prefix_cache.num_unused

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
            self._append(key, self._num_owned(length), self._take(key, num_new))
        elif key not in self._tables:
            self._tables[key] = np.empty(0, np.int64)
        self._lengths[key] = length + num_tokens

    def truncate(self, key: Hashable, length: int) -> int:
        """Forgets a session's positions from `length` on; pages that become empty become free. Returns what is left.

        That is less than `length` where it lies within a page that others have, too: it must not be written in, so it
        is given up whole.
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
        """Forgets a session; does nothing for an unknown one. Its published pages are kept until room is needed."""
        self._chains.pop(key, None)
        if key in self._lengths:
            self._release(self.table(key).tolist())
            del self._lengths[key], self._tables[key]

    # -- prefix cache ----------------------------------------------------------------------------------------------

    def digests(self, key: Hashable, scope: bytes, tokens: Sequence[int]) -> Sequence[bytes]:
        """Returns the digests of a text's full pages; none without a prefix cache, or without a scope.

        tokens: the session's text, which goes on from what was given for it before, unless it was cut since.
        """
        if not self.has_prefix_cache or not scope:
            return ()
        return self._hasher.reach(self._chain(key, scope), tokens, len(tokens) // self.page_size)

    def find(self, key: Hashable, scope: bytes, tokens: Sequence[int]) -> Hit:
        """The pages that a session without memory may begin with: whole ones, and not the last token of its text.

        scope: who may share; nobody finds what was published in another one. The answer holds until the pool changes.
        """
        digests = self.digests(key, scope, tokens)
        pages = self._prefix_cache.find(digests[: max(0, len(tokens) - 1) // self.page_size])
        return Hit(tuple(pages), len(pages) * self.page_size, self._prefix_cache.num_unused_of(pages))

    def upcoming(self, key: Hashable, scope: bytes, tokens: Sequence[int]) -> bytes | None:
        """Names the next pages that a session has to read, so that others may wait for them instead of reading them.

        None where fewer than WORTH_WAITING are left to read before the last token, or there is no prefix cache.
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
        """Opens a session with the pages that were found for it. ValueError if it has memory, or one was evicted."""
        if key in self._lengths:
            raise ValueError(f"session {key!r} has memory already; only one without can begin with kept pages")
        if not all(map(self._prefix_cache.is_kept, hit.pages)):
            raise ValueError("a page that was found is not kept any more; find again after the pool has changed")
        for page in hit.pages:
            self._prefix_cache.hold(page)
        self._tables[key] = np.array(hit.pages, np.int64)
        self._lengths[key] = hit.num_tokens
        if key in self._chains:
            self._chains[key].num_published = len(hit.pages)

    def publish(self, key: Hashable, scope: bytes, tokens: Sequence[int], num_final: int | None = None) -> None:
        """Keeps a session's full pages as those of its text, of which the first `num_final` tokens change no more.

        None: all of them.
        """
        num_full = min(self.length(key), len(tokens) if num_final is None else num_final) // self.page_size
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
        """Nobody else finds a session's pages any more: what they hold is not trusted."""
        if key in self._lengths:
            for page in self.table(key).tolist():
                self._prefix_cache.withdraw(page)

    def references(self, page: int) -> int:
        """Returns the number of sessions that have a page in use."""
        return self._prefix_cache.references(page)

    def is_kept(self, page: int) -> bool:
        """Returns whether a page can be found by its text."""
        return self._prefix_cache.is_kept(page)

    def owned(self, keys: Sequence[Hashable], others: Iterable[Hashable] = (), beside: Sequence[int] = ()) -> list[int]:
        """Numbers of pages of these sessions; of a page that several have, only the first of them is the owner.

        So when they leave from the last to the first, these are the pages that each leaves free. others: sessions that
        stay, of whose pages none of these is the owner. beside: pages of which none is, either.
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

    # -- within ----------------------------------------------------------------------------------------------------

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
        """The length, or the end of the page before where its last page is shared; else that is not kept any more."""
        place, row = divmod(length, self.page_size)
        if row:
            page = int(self._tables[key][place])
            if self._prefix_cache.references(page) > 1:
                return length - row
            self._prefix_cache.withdraw(page)
        return length

    def _release(self, pages: list[int]) -> None:
        """The last page of a text is the first to be evicted, since more texts share its beginning."""
        self._free.give([page for page in reversed(pages) if self._prefix_cache.release(page)])
        self._evict(self._prefix_cache.num_unused - self.max_unused)

    def _evict(self, number: int) -> None:
        if number > 0:
            self._free.give(sorted(self._prefix_cache.evict(number), reverse=True))

    def _take(self, key: Hashable, number: int) -> list[int]:
        if number > len(self._free):
            self._evict(max(number - len(self._free), self.num_pages // EVICTED_SHARE))
        owned = self.table(key) if key in self._lengths else None
        after = int(owned[-1]) if owned is not None and len(owned) else None
        return self._free.take(number, after, in_a_run=self.has_prefix_cache)

    def _append(self, key: Hashable, num_owned: int, pages: list[int]) -> None:
        table = self._tables.get(key)
        num_after = num_owned + len(pages)
        if table is None or len(table) < num_after:
            grown = np.empty(max(8, 2 * num_after), np.int64)
            if table is not None:
                grown[:num_owned] = table[:num_owned]
            self._tables[key] = table = grown
        table[num_owned:num_after] = pages
