"""The prefix cache: which page holds which text, so that a known beginning of a text needs no prefill.

A full page is named by a digest of its tokens and of the previous page's digest. The first page follows a root, the
digest of the text's *scope*. So equal digests mean equal texts of one scope, and texts of different scopes share no
page. The key of all digests is drawn at the start and never leaves the process: nobody outside can compute a digest or
search for a collision.
"""

import secrets
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

DIGEST_BYTES = 16
"""Among 2^40 pages, any two collide with a probability below 2^-48, and nobody outside can search for a collision."""


class Hit(NamedTuple):
    """Published pages that hold the beginning of a text."""

    pages: tuple[int, ...] = ()
    num_tokens: int = 0
    num_unused: int = 0  # pages that no session uses; they count as free


@dataclass(slots=True)
class Chain:
    """The digests of a session's full pages, from the first on; computed on demand."""

    scope: bytes
    root: bytes
    digests: list[bytes] = field(default_factory=list)
    num_published: int = 0  # leading pages that `publish` has handled


class Hasher:
    """Computes page digests under a random key of its own."""

    def __init__(self, page_size: int) -> None:
        key = secrets.token_bytes(32)
        self._page_size = page_size
        self._root = blake2b(digest_size=DIGEST_BYTES, key=key, person=b"prefix root")
        self._page = blake2b(digest_size=DIGEST_BYTES, key=key, person=b"prefix page")

    def begin(self, scope: bytes) -> Chain:
        """Returns the empty chain of a new text."""
        root = self._root.copy()
        root.update(scope)
        return Chain(scope, root.digest())

    def reach(self, chain: Chain, tokens: Sequence[int], num_pages: int) -> list[bytes]:
        """Extends a chain to at least `num_pages` pages of its text `tokens`, and returns all its digests."""
        first = len(chain.digests)
        if first < num_pages:
            size = self._page_size
            numbers = memoryview(array("Q", tokens[first * size : num_pages * size]).tobytes())
            last = chain.digests[-1] if first else chain.root
            for begin in range(0, len(numbers), 8 * size):
                page = self._page.copy()
                page.update(last)
                page.update(numbers[begin : begin + 8 * size])
                chain.digests.append(last := page.digest())
        return chain.digests


class PrefixCache:
    """Finds pages by digest, counts the sessions that use each, and tracks published pages without a session."""

    def __init__(self) -> None:
        self._pages: dict[bytes, int] = {}  # by digest
        self._digests: dict[int, bytes] = {}  # by page
        self._references: dict[int, int] = {}  # pages used by several sessions; all others have one or none
        self._unused: OrderedDict[int, None] = OrderedDict()  # published, without a session; released longest ago first

    @property
    def num_unused(self) -> int:
        return len(self._unused)

    @property
    def has_shared(self) -> bool:
        """True if any page is used by several sessions."""
        return bool(self._references)

    def references(self, page: int) -> int:
        """Returns the number of sessions that use a page."""
        return self._references.get(page, 1)

    def is_kept(self, page: int) -> bool:
        """True if a page is published: it can be found by its text."""
        return page in self._digests

    def find(self, digests: Sequence[bytes]) -> list[int]:
        """Returns the pages of the longest published prefix of `digests`."""
        pages: list[int] = []
        for digest in digests:
            page = self._pages.get(digest)
            if page is None:
                break
            pages.append(page)
        return pages

    def num_unused_of(self, pages: Sequence[int]) -> int:
        """Counts the given pages that no session uses."""
        return sum(page in self._unused for page in pages)

    def publish(self, page: int, digest: bytes) -> None:
        """Publishes a page under its digest, unless another page has the same text: then this one stays private."""
        if page not in self._digests and digest not in self._pages:
            self._digests[page] = digest
            self._pages[digest] = page

    def withdraw(self, page: int) -> None:
        """Removes a page from the cache; sessions that use the page retain it."""
        digest = self._digests.pop(page, None)
        if digest is not None:
            del self._pages[digest]

    def hold(self, page: int) -> None:
        """Counts one more session that uses a page."""
        if page in self._unused:
            del self._unused[page]
        else:
            self._references[page] = self.references(page) + 1

    def release(self, page: int) -> bool:
        """Counts one session less for a page. True if the page is now free: neither used by a session nor published."""
        left = self.references(page) - 1
        if left > 1:
            self._references[page] = left
            return False
        if self._references.pop(page, None) is not None:
            return False  # one session remains
        if page in self._digests:
            self._unused[page] = None
            return False
        return True

    def drop_unused(self, page: int) -> bool:
        """Removes a page from the cache if no session uses it. True if it did: the page is free."""
        if page not in self._unused:
            return False
        del self._unused[page]
        self.withdraw(page)
        return True

    def evict(self, number: int) -> list[int]:
        """Evicts up to `number` unused pages, those released longest ago first; the returned pages are free."""
        pages = [self._unused.popitem(last=False)[0] for _ in range(min(number, len(self._unused)))]
        for page in pages:
            self.withdraw(page)
        return pages
