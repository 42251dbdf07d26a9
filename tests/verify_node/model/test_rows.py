"""Rows where some have rules: together the same as alone, under both rules of verification, and few are copied."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from goodspeed.exact.counts import TextCounts
from goodspeed.exact.positions import certain
from goodspeed.wire.generation import LogitRules, Sampling
from tests.fakes import session_id
from verify_node.model import match_sampling, ratio
from verify_node.model.entries import VerifiedEntry
from verify_node.model.match_sampling import Verified, decide_match
from verify_node.model.ratio import decide_ratio_round, target_probs_of
from verify_node.scheduler.round import Entry

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


# -- the ratio rule: each row's own, and no more of the logits copied than rules change --------------------------------


RATIO_VOCAB = 40
LENGTHS = (2, 0, 3, 1)


def verified() -> list[VerifiedEntry]:
    """Sessions with drafts of LENGTHS, of which the second and the third have rules."""
    found: list[VerifiedEntry] = []
    first_row = 0
    for number, num_drafted in enumerate(LENGTHS):
        entry = Entry(
            session_id(number),
            0,
            (7,) * (num_drafted + 1),
            num_drafted,
            True,
            Sampling(0.8, seed=1),
            rules=LogitRules(min_p=0.3) if number in (1, 2) else None,
            verification="ratio",
            proposal=certain((7,) * num_drafted),
        )
        found.append(VerifiedEntry.of(entry, first_row, RATIO_VOCAB))
        first_row += num_drafted + 1
    return found


RATIO_LOGITS = torch.randn(sum(LENGTHS) + len(LENGTHS), RATIO_VOCAB, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("num_rows", [1, 3, 1000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_are_the_same_together_and_alone(
    monkeypatch: pytest.MonkeyPatch, num_rows: int, dtype: torch.dtype
) -> None:
    monkeypatch.setattr(ratio, "rows_at_once", lambda logits: num_rows)
    logits = RATIO_LOGITS.to(dtype)
    probs, tops = target_probs_of(verified(), logits, RATIO_VOCAB - 1)
    assert probs.shape == (len(LENGTHS), max(LENGTHS) + 1, RATIO_VOCAB - 1)
    assert tops.shape == probs.shape[:2]
    for number, one in enumerate(verified()):
        alone, top = target_probs_of([one], logits, RATIO_VOCAB - 1)
        size = len(one.drafted) + 1
        assert torch.equal(probs[number, :size], alone[0])
        assert torch.equal(tops[number, :size], top[0])
        assert torch.equal(probs[number, size:], alone[0, -1:].expand(max(LENGTHS) + 1 - size, -1))
        assert torch.equal(top[0], logits[one.first_row :][:size].amax(-1).double())


def test_one_long_draft_pads_only_rows_of_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = list[torch.Size]()

    def noting(*args: object) -> tuple[torch.Tensor, torch.Tensor]:
        probs, tops = target_probs_of(*args)  # type: ignore[arg-type]
        shapes.append(probs.shape[:2])
        return probs, tops

    together = decide_ratio_round(verified(), RATIO_LOGITS, RATIO_VOCAB, 1, records=True)
    monkeypatch.setattr(ratio, "target_probs_of", noting)
    monkeypatch.setattr(ratio, "MAX_ELEMENTS", 4 * RATIO_VOCAB)
    assert decide_ratio_round(verified(), RATIO_LOGITS, RATIO_VOCAB, 1, records=True) == together
    assert shapes == [(2, 2), (1, 3), (1, 4)]
