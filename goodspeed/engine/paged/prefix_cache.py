"""Which pages hold which texts, so that a text that begins like an earlier one need not be read again.

A full page is named by a digest of its tokens and of the digest of the page before it; the first page follows a root,
which is a digest of the text's *scope*. So equal digests mean equal texts of one scope, and texts of different scopes
have no page in common. All digests have a key that is drawn at the start and never leaves the process: nobody outside
can compute one, or look for two texts with the same.
"""

import secrets
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

DIGEST_BYTES = 16
"""Of 2^40 pages any two have the same digest with a chance below 2^-48, and nobody outside can search for such two."""


class Hit(NamedTuple):
    """Pages that a text may begin with, since they hold the beginning of it."""

    pages: tuple[int, ...] = ()
    num_tokens: int = 0
    num_unused: int = 0  # of the pages, those that count as free now


@dataclass(slots=True)
class Chain:
    """The digests of a session's full pages, from the first on; computed as they are asked for."""

    scope: bytes
    root: bytes
    digests: list[bytes] = field(default_factory=list)
    num_published: int = 0  # pages that were looked at, and need not be again


class Hasher:
    """Digests of pages under a key of its own."""

    def __init__(self, page_size: int) -> None:
        key = secrets.token_bytes(32)
        self._page_size = page_size
        self._root = blake2b(digest_size=DIGEST_BYTES, key=key, person=b"prefix root")
        self._page = blake2b(digest_size=DIGEST_BYTES, key=key, person=b"prefix page")

    def begin(self, scope: bytes) -> Chain:
        """The chain of a text of which nothing is known yet."""
        root = self._root.copy()
        root.update(scope)
        return Chain(scope, root.digest())

    def reach(self, chain: Chain, tokens: Sequence[int], num_pages: int) -> list[bytes]:
        """Computes a chain's digests up to so many pages of its text `tokens`, and returns all that it has by then."""
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
    """Pages that can be found by their digest, how many sessions have each, and which of them no session has."""

    def __init__(self) -> None:
        self._pages: dict[bytes, int] = {}  # by digest
        self._digests: dict[int, bytes] = {}  # by page
        self._references: dict[int, int] = {}  # of pages that several sessions have; all others have one or none
        self._unused: OrderedDict[int, None] = (
            OrderedDict()
        )  # that no session has: the one that was left first comes first

    @property
    def num_unused(self) -> int:
        return len(self._unused)

    @property
    def has_shared(self) -> bool:
        """True if any page is several sessions'."""
        return bool(self._references)

    def references(self, page: int) -> int:
        """Returns the number of sessions that have a page in use."""
        return self._references.get(page, 1)

    def is_kept(self, page: int) -> bool:
        """Returns whether it can be found by its text."""
        return page in self._digests

    def find(self, digests: Sequence[bytes]) -> list[int]:
        """The pages of the longest beginning of these that is kept."""
        pages: list[int] = []
        for digest in digests:
            page = self._pages.get(digest)
            if page is None:
                break
            pages.append(page)
        return pages

    def num_unused_of(self, pages: Sequence[int]) -> int:
        """Counts those of these pages that no session has."""
        return sum(page in self._unused for page in pages)

    def publish(self, page: int, digest: bytes) -> None:
        """Keeps a page under its digest, unless the same text has one already: then it stays its session's own."""
        if page not in self._digests and digest not in self._pages:
            self._digests[page] = digest
            self._pages[digest] = page

    def withdraw(self, page: int) -> None:
        """Nobody finds the page any more; those who have it keep it."""
        digest = self._digests.pop(page, None)
        if digest is not None:
            del self._pages[digest]

    def hold(self, page: int) -> None:
        """One more session has this page."""
        if page in self._unused:
            del self._unused[page]
        else:
            self._references[page] = self.references(page) + 1

    def release(self, page: int) -> bool:
        """A session has this page no more. Returns whether it is free for good: nobody has it, and it is not kept."""
        left = self.references(page) - 1
        if left > 1:
            self._references[page] = left
            return False
        if self._references.pop(page, None) is not None:
            return False  # one session is left
        if page in self._digests:
            self._unused[page] = None
            return False
        return True

    def evict(self, number: int) -> list[int]:
        """Forgets so many of the unused pages, those first that were left first; they are free for good."""
        pages = [self._unused.popitem(last=False)[0] for _ in range(min(number, len(self._unused)))]
        for page in pages:
            self.withdraw(page)
        return pages
