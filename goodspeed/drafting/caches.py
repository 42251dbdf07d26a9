"""The draft model's KV caches by session, and eviction when the pool is full.

A session's cache holds the rows of its text, then the rows of the drafted nodes in the order in which they were fed. A
node's keys are rotated for its depth, and tree attention hides all nodes but its ancestors. So branches need no cache
of their own. When the text takes a branch, the branch's rows move to the end of the text.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from goodspeed.drafting.unfinished_proposal import UnfinishedProposal
from goodspeed.engine.base import Engine
from goodspeed.engine.paged.chunks import Chunk, TreePath
from goodspeed.exact import trees
from goodspeed.exact.logits.token_counts import num_common
from goodspeed.exact.trees import BASE

PREFILL_CHUNK = 256
"""Most tokens prefilled per step and session."""

FEW = 16
"""Most tokens that a text lacks in its cache without lagging. A lagging session prefills, in the room of a step; the
others feed their tokens in every step."""

COMPARED = 32
"""Cached tokens that are compared with a text, so that long texts take no longer. A text only grows; an undetected
difference would cost some drafts."""


class Feed(NamedTuple):
    """The input of a step for a job: tokens of its text, then nodes of its tree, then mask tokens after the first
    leaf."""

    text: tuple[int, ...]
    nodes: tuple[int, ...] = ()
    leaves: tuple[int, ...] = ()  # nodes (or the base) to extend; empty: the step only fills the cache
    num_masks: int = 0
    num_prefill: int = 0  # tokens of the text of a lagging session

    @property
    def num_rows(self) -> int:
        return len(self.text) + len(self.nodes) + self.num_masks


@dataclass(slots=True)
class _Cache:
    """A session's part of the draft model's KV cache."""

    tokens: list[int] = field(default_factory=list)  # of the text
    nodes: list[tuple[int, int]] = field(default_factory=list)  # rows after the text: token, and the parent's row or -1
    rows: dict[int, int] = field(default_factory=dict)  # row of each cached node of the session's job
    used: int = 0  # step of its latest use
    is_known: bool = False  # its prefix was already looked up in the prefix cache
    shares: bool = False  # other sessions may use its cached prefix

    @property
    def length(self) -> int:
        return len(self.tokens) + len(self.nodes)

    def num_common(self, text: Sequence[int]) -> int:
        """Returns how many of its tokens are a text's beginning. Of a text that has grown only the end is compared."""
        length = len(self.tokens)
        first = max(0, length - COMPARED)
        if list(text[first:length]) == self.tokens[first:]:
            return length
        return num_common(self.tokens, list(text[:length]))


class Caches:
    """The caches of all sessions; iterates over session ids, oldest session first."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.pool = engine.pool
        self._context_len = engine.checkpoint.context_len
        self._num_parallel = engine.checkpoint.num_parallel
        self._caches: dict[bytes, _Cache] = {}
        self._num_steps = 0
        self._reserved = 0  # pages reserved for the jobs of this step
        self._room = inf  # tokens that the rest of this step may prefill
        self._being_prefilled: set[bytes] = set()  # hashes of the prefixes that this step's jobs prefill next
        self.num_looked_up = 0  # tokens looked up in the prefix cache
        self.num_found = 0  # of these, tokens found there

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._caches)

    def rewind(self, job: UnfinishedProposal) -> None:
        """Truncates the cache to the rows that the job needs: the text, and nodes with children.

        If nothing is drafted after the base, the text's final token is fed again, because its logits are needed.
        """
        cache = self._caches.setdefault(job.session_id, _Cache())
        cache.shares = job.propose.shares
        num_kept = cache.num_common(job.text)
        way, needed = self._rows_to_keep(cache, job, num_kept)
        if num_kept + len(way) == len(job.text) and job.tree.is_leaf(BASE):
            num_kept, way = (num_kept, way[:-1]) if way else (num_kept - 1, way)
        kept = sorted({*way, *needed.values()})
        if kept:
            self._engine.keep([TreePath(job.session_id, num_kept, tuple(kept))])
        else:
            num_kept = self.pool.truncate(job.session_id, num_kept)
        moved = {row: place - len(way) for place, row in enumerate(kept)} | dict.fromkeys((BASE, *way), BASE)
        cache.nodes = [(cache.nodes[row][0], moved[cache.nodes[row][1]]) for row in kept[len(way) :]]
        cache.rows = {node: moved[row] for node, row in needed.items()}
        cache.tokens[num_kept:] = job.text[num_kept : num_kept + len(way)]

    def _rows_to_keep(self, cache: _Cache, job: UnfinishedProposal, num_kept: int) -> tuple[list[int], dict[int, int]]:
        """Returns the rows that belong to the text now, in order, and the rows of the job's nodes."""
        way: list[int] = []
        at, needed = BASE, dict[int, int]()
        if num_kept < len(cache.tokens) or not cache.nodes:
            return way, needed
        children = {node: row for row, node in enumerate(cache.nodes)}  # by token, and the parent's row
        for token in job.text[num_kept : num_kept + len(cache.nodes)]:
            row = children.get((token, at))
            if row is None:
                return way, needed
            way.append(at := row)
        rows: dict[int, int] = {BASE: at}
        for node in trees.first_choices(job.tree.parents) if job.is_narrow else range(len(job.tree.tokens)):
            parent = rows.get(job.tree.parents[node]) if not job.tree.is_leaf(node) else None
            row = children.get((job.tree.tokens[node], parent)) if parent is not None else None
            if row is not None:
                rows[node] = needed[node] = row
        return way, needed

    def forget(self, session_id: bytes) -> None:
        """Frees a closed session's pages; pages that other sessions may share stay in the prefix cache."""
        cache = self._caches.pop(session_id, None)
        if cache is not None and not cache.shares:
            self.pool.withdraw(session_id)
        self.pool.free(session_id)

    def lags(self, job: UnfinishedProposal) -> bool:
        """True if much of the job's text is not cached."""
        return len(job.text) - self.num_cached(job) > FEW

    def begin_step(self, room: float = inf) -> None:
        """Starts reserving pages for the next forward pass. room: tokens to prefill."""
        self._room = room
        self._num_steps += 1
        self._reserved = 0
        self._being_prefilled.clear()

    def waits_for_another(self, job: UnfinishedProposal) -> bool:
        """Returns True if another job of this step prefills the same prefix: one step later it is cached."""
        return job.session_id not in self.pool and self._upcoming(job) in self._being_prefilled

    def reserve(self, job: UnfinishedProposal, jobs: Mapping[bytes, UnfinishedProposal], width: int) -> Feed | None:
        """Reserves pages for a job's input of this step. None: the context or the pool does not suffice, or the text
        has a token that this model lacks. An input without rows: the job has nothing to feed; or it lags, and others
        prefill all that this step may.

        If pages are short, drops the job's branches first; then evicts idle sessions, the least recently used first.

        jobs: all unfinished proposals, by session. width: most leaves to extend.
        """
        pool = self.pool
        if job.session_id not in pool:
            self._begin(job, self._caches[job.session_id])
        feed = self._feed(job, width)
        if not job.is_narrow and (self._is_too_long(job, feed) or self._needed(job, feed) > self._num_free):
            job.is_narrow = True
            self.rewind(job)
            feed = self._feed(job, 1)
        if self._is_too_long(job, feed) or max(feed.text, default=0) >= self._engine.checkpoint.num_tokens:
            return None
        while self._num_free < self._needed(job, feed):
            idle = [key for key in self._caches if key in pool and key not in jobs]
            if not idle:
                return None
            self._evict(min(idle, key=lambda key: self._caches[key].used))
        self._reserved += self._needed(job, feed)
        self._room -= feed.num_prefill
        self._caches[job.session_id].used = self._num_steps
        if feed.num_rows and (upcoming := self._upcoming(job)) is not None:
            self._being_prefilled.add(upcoming)
        return feed

    @property
    def _num_free(self) -> int:
        return self.pool.num_free - self._reserved

    def _needed(self, job: UnfinishedProposal, feed: Feed) -> int:
        return self.pool.pages_needed(job.session_id, feed.num_rows)

    def _is_too_long(self, job: UnfinishedProposal, feed: Feed) -> bool:
        return self._caches[job.session_id].length + feed.num_rows > self._context_len

    def _feed(self, job: UnfinishedProposal, width: int) -> Feed:
        """Returns the next uncached tokens of the text, as many as there is room for.

        If they reach the end of the text, also returns the leaves to extend and their uncached ancestors.
        """
        cache = self._caches[job.session_id]
        first, lags = len(cache.tokens), self.lags(job)
        text = job.text[first : first + int(min(PREFILL_CHUNK, self._room if lags else FEW))]
        num_prefill = len(text) if lags else 0
        leaves = tuple(job.leaves(width)) if first + len(text) == len(job.text) and job.length else ()
        if not leaves:
            return Feed(text, num_prefill=num_prefill)
        behind = [leaf for leaf in leaves if leaf != BASE and job.tree.parents[leaf] not in cache.rows]
        above = {node for leaf in behind for node in job.tree.path(leaf)[:-1] if node not in cache.rows}
        nodes = (*sorted(above), *(leaf for leaf in leaves if leaf != BASE))
        num_masks = self._num_masks(job, leaves[0], cache.length + len(text) + len(nodes))
        return Feed(text, nodes, leaves, num_masks, num_prefill)

    def _num_masks(self, job: UnfinishedProposal, leaf: int, num_rows: int) -> int:
        """Returns the number of mask tokens after the first leaf: one less than the tokens of one forward pass."""
        most = min(job.length - job.num_drafted, job.propose.max_depth - job.tree.depth(leaf))
        return max(0, min(self._num_parallel, most, self._context_len + 1 - num_rows) - 1)

    def chunk(self, job: UnfinishedProposal, feed: Feed) -> Chunk:
        """Returns the tokens of a step as a chunk, and notes the rows of its nodes."""
        cache, tree = self._caches[job.session_id], job.tree
        for node in feed.nodes:
            cache.rows[node] = len(cache.nodes)
            cache.nodes.append((tree.tokens[node], cache.rows.get(tree.parents[node], BASE)))
        cache.tokens += feed.text
        parents = [parent for _, parent in cache.nodes]
        if feed.num_masks:
            last = cache.rows.get(feed.leaves[0], BASE)
            parents += [last, *range(len(parents), len(parents) + feed.num_masks - 1)]
        return Chunk(
            job.session_id,
            [*feed.text, *(tree.tokens[node] for node in feed.nodes)],
            len(feed.leaves) + feed.num_masks,
            None if trees.is_chain(tuple(parents)) else parents,
            feed.num_masks,
        )

    def _begin(self, job: UnfinishedProposal, cache: _Cache) -> None:
        """Fills a session's empty cache from the prefix cache, if this step's reservations leave enough pages free."""
        pool = self.pool
        hit = pool.find(job.session_id, job.propose.scope, job.text)
        if pool.num_free - self._reserved < hit.num_unused:
            return
        if not cache.is_known:
            cache.is_known = True
            self.num_looked_up += len(job.text)
            self.num_found += hit.num_tokens
        if hit.pages:
            pool.adopt(job.session_id, hit)
            cache.tokens = list(job.text[: hit.num_tokens])

    def _upcoming(self, job: UnfinishedProposal) -> bytes | None:
        return self.pool.upcoming(job.session_id, job.propose.scope, job.text)

    def _evict(self, session_id: bytes) -> None:
        self.pool.free(session_id)
        cache = self._caches[session_id]
        self._caches[session_id] = _Cache(is_known=cache.is_known, shares=cache.shares)

    def num_cached(self, job: UnfinishedProposal) -> int:
        return len(self._caches[job.session_id].tokens)

    def publish(self, job: UnfinishedProposal) -> None:
        """Publishes the text's full pages in the prefix cache."""
        self.pool.publish(job.session_id, job.propose.scope, job.text)
