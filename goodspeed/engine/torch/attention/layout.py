"""The layout of a ragged batch: positions and pool slots of its tokens, and its division into attention groups.

A *group* is a run of chunks that attend together, each padded to the group's longest draft and context. Grouping keeps
the padding small, so one session with a long context does not slow down the others. It also keeps a group's gathered
keys and values small enough for the processor's cache.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from goodspeed.engine.torch.attention.trees import Bools, Ints, Tree

FETCH_COST = 8
"""Fetching one key row costs about as much as multiplying this many queries with it (measured on a CPU)."""


@dataclass(frozen=True)
class GroupLimits:
    """Limits on the padding of chunks that attend together, and on the key rows that one group gathers."""

    max_padding: int  # wasted (queries + FETCH_COST) * keys per chunk; above it a separate group is cheaper
    max_group_rows: int  # key rows gathered at a time


@dataclass(frozen=True)
class Layout:
    """Chunks in packed order; chunk i appends counts[i] tokens to a session with starts[i] cached tokens.

    The final tokens of a chunk may form a tree; all other tokens form a chain. A tree may be longer than its chunk: its
    first nodes are the session's final cached tokens.
    """

    starts: Ints  # [num_chunks]
    counts: Ints  # [num_chunks]
    tables: Ints  # [num_chunks, max_pages] short rows repeat their final page
    positions: Ints  # [num_tokens] in the text
    slots: Ints  # [num_tokens] row of the pool, page * page_size + offset
    page_size: int
    trees: Mapping[int, Tree] = field(default_factory=dict)  # by chunk


@dataclass(frozen=True)
class Group:
    """Chunks low to high - 1, which attend together: each padded to num_queries tokens over num_pages pages."""

    low: int
    high: int
    num_queries: int
    num_pages: int

    @property
    def num_chunks(self) -> int:
        return self.high - self.low

    @property
    def num_rows(self) -> int:
        return (self.high - self.low) * self.num_queries


@dataclass(frozen=True)
class Plan:
    """All groups of one forward pass for one attention window; index arrays are computed on demand.

    starts, tables: those of the layout; with a window, as if each session began with its window's first page.
    """

    groups: list[Group]
    counts: Ints  # [num_chunks]
    starts: Ints  # [num_chunks]
    tables: Ints  # [num_chunks, max_pages]
    num_tokens: int
    trees: Mapping[int, Tree]

    def pages(self, group: Group) -> Ints:
        """Returns the pages that the group gathers [num_chunks * num_pages]; a short table repeats its final page."""
        columns = np.minimum(np.arange(group.num_pages), self.tables.shape[1] - 1)
        return self.tables[group.low : group.high, columns].ravel()

    def query_rows(self, group: Group) -> Ints:
        """Returns the row of each query's own key [num_chunks, num_queries], relative to the first gathered key.

        Padding repeats a chunk's final query.
        """
        return self.starts[group.low : group.high, None] + self._tokens(group)

    def hidden_in_trees(self, group: Group, num_keys: int, window: int | None) -> list[tuple[int, int, Bools]]:
        """Returns for each tree in the group: chunk within the group, first query of its nodes, their hidden keys.

        Hidden keys are [num_queries, num_keys], up to the group's last query; padding repeats a chunk's final query.
        """
        found: list[tuple[int, int, Bools]] = []
        for chunk, tree in self.trees.items():
            if group.low <= chunk < group.high:
                first = int(self.counts[chunk]) - len(tree)  # negative if its first nodes are cached
                nodes = np.minimum(np.arange(max(-first, 0), group.num_queries - first), len(tree) - 1)
                hidden = tree.hidden(nodes, int(self.starts[chunk]) + first - 1, num_keys, window)
                found.append((chunk - group.low, max(first, 0), hidden))
        return found

    def padding(self) -> tuple[Ints, Ints] | None:
        """Returns the token of each padded query row, and the row of each token; None if no query is padded."""
        if sum(group.num_rows for group in self.groups) == self.num_tokens:
            return None
        offsets = self.counts.cumsum() - self.counts
        rows = [(offsets[group.low : group.high, None] + self._tokens(group)).ravel() for group in self.groups]
        padded = np.concatenate(rows)
        unpadded = np.empty(self.num_tokens, np.int64)
        unpadded[padded] = np.arange(len(padded))  # any row of a repeated query: all are equal
        return padded, unpadded

    def _tokens(self, group: Group) -> Ints:
        """Returns the index of each query's token within its chunk [num_chunks, num_queries]."""
        tokens: Ints = np.minimum(np.arange(group.num_queries), self.counts[group.low : group.high, None] - 1)
        return tokens


def lay_out(
    starts: Sequence[int],
    counts: Sequence[int],
    tables: Sequence[Ints],
    page_size: int,
    trees: Mapping[int, Tree] | None = None,
) -> Layout:
    """Lays out every token of the batch.

    tables: pages of each chunk, new ones included. trees: by chunk, for chunks that end in a tree.
    """
    start, count = np.array(starts, np.int64), np.array(counts, np.int64)
    table = np.empty((len(tables), max(map(len, tables))), np.int64)
    for row, pages in zip(table, tables, strict=True):
        row[: len(pages)] = pages
        row[len(pages) :] = pages[-1]
    chunk = np.arange(len(start))  # chunk of each token
    rows: Ints = start  # row of each token's key within its session
    if max(counts) > 1:
        chunk = np.repeat(chunk, count)
        rows = (start - count.cumsum() + count)[chunk] + np.arange(len(chunk))
    page, offset = np.divmod(rows, page_size)
    slots = table[chunk, page] * page_size + offset
    if not trees:
        return Layout(start, count, table, rows, slots, page_size)
    positions, ends = rows.copy(), count.cumsum()
    for number, tree in trees.items():
        end, num_new = int(ends[number]), min(len(tree), int(count[number]))
        positions[end - num_new : end] = rows[end - 1] - len(tree) + tree.depths[-num_new:]
    return Layout(start, count, table, positions, slots, page_size, trees)


def plan(layout: Layout, window: int | None, limits: GroupLimits) -> Plan:
    """Divides the batch into groups.

    window: in tokens, the query included; only the window's pages are gathered. None: all pages.
    """
    starts, tables = (layout.starts, layout.tables) if window is None else _in_window(layout, window)
    counts = layout.counts.tolist()
    ends = zip(starts.tolist(), counts, strict=True)
    num_pages = [-(-(start + count) // layout.page_size) for start, count in ends]
    bounds = _bounds(counts, [pages * layout.page_size for pages in num_pages], limits)
    groups = [Group(low, high, max(counts[low:high]), max(num_pages[low:high])) for low, high in bounds]
    return Plan(groups, layout.counts, starts, tables, len(layout.positions), layout.trees)


def _in_window(layout: Layout, window: int) -> tuple[Ints, Ints]:
    first = layout.starts - window + 1
    for number, tree in layout.trees.items():  # cached nodes have rows behind the base, and positions of their depth
        first[number] -= max(0, len(tree) - int(layout.counts[number]))
    first_pages = np.maximum(first, 0) // layout.page_size
    most = layout.tables.shape[1]
    columns = np.minimum(first_pages[:, None] + np.arange(most), most - 1)
    return layout.starts - first_pages * layout.page_size, np.take_along_axis(layout.tables, columns, axis=1)


def _bounds(counts: list[int], keys: list[int], limits: GroupLimits) -> list[tuple[int, int]]:
    """Splits the chunks, in order, where padding costs more than another group, or the group would gather too much."""
    bounds, low = [], 0
    most_queries, most_keys, least = counts[0], keys[0], _cost(counts[0], keys[0])
    for i in range(1, len(counts)):
        queries, key_rows, own = max(most_queries, counts[i]), max(most_keys, keys[i]), _cost(counts[i], keys[i])
        padding = _cost(queries, key_rows) - min(least, own)
        if padding <= limits.max_padding and (i + 1 - low) * key_rows <= limits.max_group_rows:
            most_queries, most_keys, least = queries, key_rows, min(least, own)
        else:
            bounds.append((low, i))
            low, most_queries, most_keys, least = i, counts[i], keys[i], own
    return [*bounds, (low, len(counts))]


def _cost(num_queries: int, num_keys: int) -> int:
    return (num_queries + FETCH_COST) * num_keys
