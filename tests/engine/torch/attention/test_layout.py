"""A ragged batch is laid out and grouped: cases by hand, then the law that grouping loses nothing."""

import random

import numpy as np
import pytest

from goodspeed.engine.torch.attention.layout import Group, GroupLimits, Layout, Plan, lay_out, plan

TIGHT = GroupLimits(max_padding=0, max_group_rows=1 << 30)
LOOSE = GroupLimits(max_padding=1 << 30, max_group_rows=1 << 30)


def pages(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def test_one_long_context_does_not_make_the_others_pay() -> None:
    counts = [5] * 64
    starts = [2000] + [100 + i % 8 for i in range(63)]
    tables = [np.arange(-(-(s + 5) // 16)) for s in starts]
    groups = plan(lay_out(starts, counts, tables, 16), None, GroupLimits(1 << 10, 1 << 30)).groups
    gathered = sum(group.num_chunks * group.num_pages * 16 for group in groups)
    assert len(groups) == 2
    assert gathered < 1.15 * sum(len(table) * 16 for table in tables)


def test_a_group_gathers_no_more_than_it_may() -> None:
    tables = [np.arange(8)] * 10
    groups = plan(lay_out([120] * 10, [1] * 10, tables, 16), None, GroupLimits(1 << 30, 300)).groups
    assert [group.num_chunks for group in groups] == [2] * 5


@pytest.mark.parametrize("limits", [TIGHT, LOOSE, GroupLimits(1000, 500)])
@pytest.mark.parametrize("window", [None, 1, 5, 40])
def test_every_query_finds_all_its_keys(limits: GroupLimits, window: int | None) -> None:
    rng = random.Random(1)
    for _ in range(20):
        layout = random_layout(rng)
        made = plan(layout, window, limits)
        seen = [keys for group in made.groups for keys in visible(made, group, window, layout.page_size)]
        if rows := made.padding():
            seen = [seen[row] for row in rows[1]]
        assert seen == expected(layout, window)


def random_layout(rng: random.Random) -> Layout:
    sessions = [(rng.randint(0, 90), rng.randint(1, 12)) for _ in range(rng.randint(1, 9))]
    numbers = iter(rng.sample(range(1000), 1000))
    tables = [pages(*(next(numbers) for _ in range(-(-(s + n) // 4)))) for s, n in sessions]
    return lay_out([s for s, _ in sessions], [n for _, n in sessions], tables, page_size=4)


def visible(made: Plan, group: Group, window: int | None, page_size: int) -> list[list[int]]:
    """Slots that each padded query row attends to."""
    rows = []
    for i in range(group.num_chunks):
        own = made.pages(group).reshape(group.num_chunks, -1)[i]
        slots = [int(page) * page_size + offset for page in own for offset in range(page_size)]
        for query in made.query_rows(group)[i]:
            low = 0 if window is None else query - window + 1
            rows.append([slot for position, slot in enumerate(slots) if low <= position <= query])
    return rows


def expected(layout: Layout, window: int | None) -> list[list[int]]:
    rows = []
    for start, count, table in zip(layout.starts, layout.counts, layout.tables, strict=True):
        for query in range(start, start + count):
            low = 0 if window is None else max(0, query - window + 1)
            rows.append([int(table[p // 4]) * 4 + p % 4 for p in range(low, query + 1)])
    return rows
