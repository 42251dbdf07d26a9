"""Requests of a forward pass: tokens to append to sessions, and paths to keep of trees.

Every engine takes these. No tensors: an engine need not be torch's.
"""

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from goodspeed.engine.paged.pages import PagePool

MAX_PARALLEL = 64
"""Most tokens drafted in one pass, with masks: the limit of a draft's length."""


@dataclass(frozen=True)
class Chunk:
    """Tokens to append to a session at its cached length; logits are returned for the final `num_logits` tokens.

    parents: each node's parent in the tree that the final tokens form, as an index within the tree; -1: the token
    before the tree. Parents come first. All other tokens form a chain. None: no tree. The first nodes of a tree
    longer than the chunk are the session's final cached tokens.

    num_masks: masks after the tokens, of a checkpoint that predicts several tokens in one pass; the final `num_logits`
    tokens and the tree include them. `forward` appends them, and drops them from the session after the pass.
    """

    key: Hashable
    tokens: Sequence[int]
    num_logits: int
    parents: Sequence[int] | None = None
    num_masks: int = 0


class TreePath(NamedTuple):
    """The path to retain of a tree: node indexes from a first node down; empty: no node is retained."""

    key: Hashable
    length: int  # tokens of the session before the tree
    nodes: tuple[int, ...]

    @property
    def end(self) -> int:
        """Length of the session, in tokens, once the path is retained."""
        return self.length + len(self.nodes)

    @property
    def is_first(self) -> bool:
        """True if the retained nodes are the first ones, so that none has to move."""
        return self.nodes == tuple(range(len(self.nodes)))


def check_chunks(pool: PagePool, chunks: Sequence[Chunk]) -> None:
    """Raises ValueError for chunks that cannot be computed, PoolExhausted if the pool lacks their pages together."""
    if not chunks or len({chunk.key for chunk in chunks}) != len(chunks):
        raise ValueError("a forward pass needs sessions, each of them once")
    for chunk in chunks:
        if not 0 <= chunk.num_logits <= len(chunk.tokens) or not chunk.tokens:
            raise ValueError(f"{chunk.num_logits} logits are not possible for {len(chunk.tokens)} tokens")
        num_nodes, num_cached = len(chunk.parents or ()), pool.length(chunk.key)
        if 0 < num_nodes >= num_cached + len(chunk.tokens):
            raise ValueError(f"a tree of {num_nodes} nodes needs as many tokens, and one before it")
    pool.check_free(sum(pool.pages_needed(chunk.key, len(chunk.tokens)) for chunk in chunks))


def check_paths(pool: PagePool, paths: Sequence[TreePath]) -> None:
    """Raises ValueError for an invalid path, or a session that comes twice."""
    if len({path.key for path in paths}) != len(paths):
        raise ValueError("each session may keep only one path")
    for path in paths:
        cached = pool.length(path.key)
        ascends = all(one < other for one, other in pairwise((-1, *path.nodes)))
        if not 0 <= path.length <= cached or not ascends or path.length + max(path.nodes, default=-1) >= cached:
            raise ValueError(f"{list(path.nodes)} is not a path of nodes after token {path.length} of {cached}")


@contextmanager
def extended(pool: PagePool, chunks: Sequence[Chunk]) -> Iterator[list[int]]:
    """Gives each session the pages of its chunk; yields the sessions' lengths before.

    The tokens of chunks end with their masks (`base.with_masks`), which are dropped after the block. If the block
    raises, for example because the pass fails, sessions are as before. Raises as `check_chunks` does.
    """
    check_chunks(pool, chunks)
    starts = [pool.length(chunk.key) for chunk in chunks]
    try:
        for chunk in chunks:
            pool.extend(chunk.key, len(chunk.tokens))
        yield starts
        for chunk in chunks:
            if chunk.num_masks:
                pool.truncate(chunk.key, pool.length(chunk.key) - chunk.num_masks)
    except BaseException:
        for chunk, start in zip(chunks, starts, strict=True):
            if start == 0:
                pool.free(chunk.key)
            elif pool.length(chunk.key) > start:
                pool.truncate(chunk.key, start)
        raise
