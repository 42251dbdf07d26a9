"""Prompts that no model was trained on and that nobody is asked twice: for measuring, and for a history before it."""

import json
from itertools import chain, islice
from pathlib import Path

from goodspeed.embedded import prompts
from goodspeed.embedded.prompts import NUM_DOMAINS, Prompt

MORE = Path(__file__).parent / "earlier.jsonl"
"""Other held-out prompts of the domains, one after the other, without seeds."""

Row = list[Prompt]
"""One prompt of each domain, in the domains' order."""


def measured(num_rows: int) -> list[Row]:
    """The prompts of each repetition: the first rows of the embedded file."""
    loaded = prompts.load()
    rows = [loaded[start : start + NUM_DOMAINS] for start in range(0, len(loaded), NUM_DOMAINS)]
    if num_rows > len(rows):
        raise ValueError(f"there are {len(rows)} rows of prompts; give --repetitions {len(rows) - 1} at most")
    return rows[:num_rows]


def earlier(num_rows: int, num_measured: int) -> list[Row]:
    """Other prompts of each domain: the embedded file's rest, then those of MORE.

    num_measured: rows that are measured. Their seeds are their own, so that their texts are nobody's else.
    """
    loaded = prompts.load()
    more = [json.loads(line) for line in MORE.read_text("utf-8").splitlines()]
    columns = []
    for number in range(NUM_DOMAINS):
        own = loaded[number::NUM_DOMAINS]
        domain = own[0].domain
        fresh = (one["prompt"] for one in more if one["domain"] == domain)
        texts = list(islice(chain((one.prompt for one in own[num_measured:]), fresh), num_rows))
        if len(texts) < num_rows:
            raise ValueError(f"{domain} has {len(texts)} other prompts; give --history {len(texts)} at most")
        columns.append([Prompt(text, domain, 10_000 + NUM_DOMAINS * row + number) for row, text in enumerate(texts)])
    return [list(row) for row in zip(*columns, strict=True)]
