"""Rows where some have rules: together the same as alone, under both rules of verification, and few are copied."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from goodspeed.exact.logits.token_counts import TextCounts
from goodspeed.exact.proposal_bytes import certain
from goodspeed.wire.fields import Verification
from goodspeed.wire.generation import LogitRules, Sampling
from tests.fakes import make_entry
from verify_node.model import match_rule, ratio_rule
from verify_node.model.entries import VerifiedEntry
from verify_node.model.match_rule import decide_match_round
from verify_node.model.ratio_rule import decide_ratio_round, target_probs_of

VOCAB = 40


def verified(lengths: list[int], ruled: set[int], rules: LogitRules, rule: Verification) -> list[VerifiedEntry]:
    """Sessions with drafts of these lengths, some with rules."""
    found, first_row = list[VerifiedEntry](), 0
    for number, num_drafted in enumerate(lengths):
        drafted, own = tuple(range(num_drafted)), rules if number in ruled else None
        kind: Any = {"sampling": Sampling(0.8, seed=number), "verification": rule, "logit_rules": own}
        entry = make_entry(number, 0, (1, 2, 3, *drafted), num_drafted, proposal=certain(drafted), **kind)
        one = VerifiedEntry(entry=entry, first_row=first_row, drafted=drafted, counts=TextCounts.of([1, 2], [3]))
        found.append(one.decoded(VOCAB))
        first_row += num_drafted + 1
    return found


def some_logits(entries: list[VerifiedEntry]) -> torch.Tensor:
    num_rows = sum(len(one.drafted) + 1 for one in entries)
    return torch.randn(num_rows, VOCAB, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("num_rows", [1, 4, 7, 1000])
@pytest.mark.parametrize("is_limited", [False, True])
def test_draws_do_not_depend_on_groups(monkeypatch, num_rows, is_limited):
    rules = LogitRules(presence_penalty=1.5, repetition_penalty=1.5, min_p=0.05)
    entries = verified([number % 4 for number in range(9)], {2, 5, 6}, rules, "match")
    logits = some_logits(entries)
    words = np.full((len(logits), 2), -1, np.int32)
    words[::5] = 0x0F0F
    rows = [slice(one.first_row, one.first_row + len(one.drafted) + 1) for one in entries]
    entries = [
        replace(one, allowed=words[some]) if is_limited and number % 3 else one
        for number, (one, some) in enumerate(zip(entries, rows, strict=True))
    ]
    monkeypatch.setattr(match_rule, "rows_at_once", lambda logits: num_rows)
    together = decide_match_round(entries, logits, VOCAB, records=True)
    for entry, some, outcome in zip(entries, rows, together, strict=True):
        assert decide_match_round([replace(entry, first_row=0)], logits[some], VOCAB, records=True) == [outcome]


# -- the ratio rule: each row's own, and no more of the logits copied than rules change --------------------------------


LENGTHS = [2, 0, 3, 1]
RATIO = verified(LENGTHS, {1, 2}, LogitRules(min_p=0.3), "ratio")
LOGITS = some_logits(RATIO)


@pytest.mark.parametrize("num_rows", [1, 3, 1000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_are_the_same_together_and_alone(monkeypatch, num_rows, dtype):
    monkeypatch.setattr(ratio_rule, "rows_at_once", lambda logits: num_rows)
    logits = LOGITS.to(dtype)
    probs, tops = target_probs_of(RATIO, logits, VOCAB - 1)
    assert probs.shape == (len(LENGTHS), max(LENGTHS) + 1, VOCAB - 1)
    assert tops.shape == probs.shape[:2]
    for number, one in enumerate(RATIO):
        alone, top = target_probs_of([one], logits, VOCAB - 1)
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

    together = decide_ratio_round(RATIO, LOGITS, VOCAB, 1, records=True)
    monkeypatch.setattr(ratio_rule, "target_probs_of", noting)
    monkeypatch.setattr(ratio_rule, "MAX_ELEMENTS", 4 * VOCAB)
    assert decide_ratio_round(RATIO, LOGITS, VOCAB, 1, records=True) == together
    assert shapes == [(2, 2), (1, 3), (1, 4)]
