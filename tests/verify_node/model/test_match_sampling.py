"""The match rule's draws where some rows have rules: in groups of any size the same, and few rows are copied."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from goodspeed.exact.counts import TextCounts
from goodspeed.wire.generation import LogitRules, Sampling
from verify_node.model import match_sampling
from verify_node.model.match_sampling import Verified, decide_match

VOCAB = 64
RULES = LogitRules(presence_penalty=1.5, repetition_penalty=1.5, min_p=0.05)


def make_entries() -> list[Verified]:
    entries, first_row = list[Verified](), 0
    for number in range(9):
        drafted = tuple(range(number % 4))
        rules = RULES if number in (2, 5, 6) else None
        counts, sampling = TextCounts.of([1, 2], [3]), Sampling(seed=number)
        entries.append(
            Verified(first_row=first_row, base_len=3, drafted=drafted, sampling=sampling, rules=rules, counts=counts)
        )
        first_row += len(drafted) + 1
    return entries


ENTRIES = make_entries()
NUM_ROWS = ENTRIES[-1].first_row + len(ENTRIES[-1].drafted) + 1
LOGITS = torch.randn(NUM_ROWS, VOCAB, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("num_rows", [1, 4, 7, 1000])
@pytest.mark.parametrize("is_limited", [False, True])
def test_draws_do_not_depend_on_groups(monkeypatch, num_rows, is_limited):
    words = np.full((NUM_ROWS, 2), -1, np.int32)
    words[::5] = 0x0F0F
    rows = [slice(one.first_row, one.first_row + len(one.drafted) + 1) for one in ENTRIES]
    entries = [
        replace(one, allowed=words[some]) if is_limited and number % 3 else one
        for number, (one, some) in enumerate(zip(ENTRIES, rows, strict=True))
    ]
    monkeypatch.setattr(match_sampling, "rows_at_once", lambda logits: num_rows)
    together = decide_match(entries, LOGITS, VOCAB)
    for entry, some, decision in zip(entries, rows, together, strict=True):
        assert decide_match([replace(entry, first_row=0)], LOGITS[some], VOCAB) == [decision]
