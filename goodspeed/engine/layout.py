"""Where a ragged batch lies: positions and pool slots of its tokens, and its division into attention groups.

Knows nothing about tensors or models: numbers in, numpy index arrays out. A *group* is a run of chunks that attend
together, each padded to the group's longest draft and context; grouping keeps that padding small, so one session with
a long context does not make the others pay, and keeps a group's gathered keys and values small enough for the cache.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

FETCH_COST = 8
"""Bringing in one key row costs about as much as multiplying this many queries with it (measured on a CPU)."""


@dataclass(frozen=True)
class Limits:
    """How far chunks may be padded to attend together, and how much one group may gather."""

    max_padding: int  # (queries + FETCH_COST) * keys wasted per chunk; beyond it a group of its own is cheaper
    max_group_rows: int  # key rows gathered at a time


@dataclass(frozen=True)
class Layout:
    """Chunks in packed order; chunk i appends counts[i] tokens to a session that has starts[i] cached."""

    starts: Ints  # [num_chunks]
    counts: Ints  # [num_chunks]
    tables: Ints  # [num_chunks, max_pages], each row filled up with its own last page
    positions: Ints  # [num_tokens]
    slots: Ints  # [num_tokens] row of the pool, page * page_size + offset
    page_size: int


@dataclass(frozen=True)
class Group:
    """Chunks that attend together: [num_chunks, num_queries] padded queries over num_pages pages each."""

    num_chunks: int
    num_queries: int
    num_pages: int
    pages: Ints  # [num_chunks * num_pages]
    query_positions: Ints  # [num_chunks, num_queries], a padded query repeats the last one
    first_positions: Ints  # [num_chunks] position of the first gathered key


@dataclass(frozen=True)
class Plan:
    """All groups of one forward pass for one attention window, and the way between packed and padded rows."""

    groups: list[Group]
    padded: Ints | None  # [num_rows] packed token of each padded query row; None when nothing is padded
    unpadded: Ints | None  # [num_tokens] padded query row of each token


def lay_out(starts: Sequence[int], counts: Sequence[int], tables: Sequence[Ints], page_size: int) -> Layout:
    """Positions and slots of every token of the batch; tables[i] holds the pages of chunk i, new ones included."""
    start, count = np.array(starts, np.int64), np.array(counts, np.int64)
    table = np.empty((len(tables), max(len(pages) for pages in tables)), np.int64)
    for row, pages in zip(table, tables, strict=True):
        row[: len(pages)] = pages
        row[len(pages) :] = pages[-1]
    offset = count.cumsum() - count
    positions: Ints = (np.repeat(start - offset, count) + np.arange(count.sum())).astype(np.int64, copy=False)
    chunk = np.repeat(np.arange(len(count)), count)
    slots = table[chunk, positions // page_size] * page_size + positions % page_size
    return Layout(start, count, table, positions, slots.astype(np.int64, copy=False), page_size)


def plan(layout: Layout, window: int | None, limits: Limits) -> Plan:
    """Divide the batch into groups; with a window (in tokens, the query itself counts) only its pages are gathered."""
    first_pages = _first_pages(layout, window)
    num_pages = -(-(layout.starts + layout.counts) // layout.page_size) - first_pages
    bounds = _bounds(layout.counts.tolist(), (num_pages * layout.page_size).tolist(), limits)
    offsets = layout.counts.cumsum() - layout.counts
    groups, padded = [], []
    for low, high in bounds:
        num_queries, most_pages = int(layout.counts[low:high].max()), int(num_pages[low:high].max())
        query = np.minimum(np.arange(num_queries), layout.counts[low:high, None] - 1)  # [chunks, queries]
        column = np.minimum(first_pages[low:high, None] + np.arange(most_pages), layout.tables.shape[1] - 1)
        groups.append(
            Group(
                num_chunks=high - low,
                num_queries=num_queries,
                num_pages=most_pages,
                pages=np.take_along_axis(layout.tables[low:high], column, axis=1).ravel(),
                query_positions=layout.starts[low:high, None] + query,
                first_positions=first_pages[low:high] * layout.page_size,
            )
        )
        padded.append((offsets[low:high, None] + query).ravel())
    return _with_rows(groups, np.concatenate(padded), len(layout.positions))


def _first_pages(layout: Layout, window: int | None) -> Ints:
    if window is None:
        return np.zeros_like(layout.starts)
    return np.maximum(layout.starts - window + 1, 0) // layout.page_size


def _bounds(counts: list[int], keys: list[int], limits: Limits) -> list[tuple[int, int]]:
    """Cut the chunks, in order, where padding costs more than another group, or the group would gather too much."""
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


def _with_rows(groups: list[Group], padded: Ints, num_tokens: int) -> Plan:
    if len(padded) == num_tokens:
        return Plan(groups, None, None)
    unpadded = np.empty(num_tokens, np.int64)
    unpadded[padded] = np.arange(len(padded))  # of a repeated query any row will do: they are equal
    return Plan(groups, padded, unpadded)
