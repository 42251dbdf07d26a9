"""Probabilities under the ratio rule: each row's own, and no more of the logits copied than rules change."""

import pytest
import torch

from goodspeed.exact.positions import certain
from goodspeed.wire.generation import LogitRules, Sampling
from tests.fakes import session_id
from verify_node.model import ratio
from verify_node.model.entries import VerifiedEntry
from verify_node.model.ratio import decide_ratio_round, target_probs_of
from verify_node.scheduler.round import Entry

VOCAB = 40
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
        found.append(VerifiedEntry.of(entry, first_row, VOCAB))
        first_row += num_drafted + 1
    return found


LOGITS = torch.randn(sum(LENGTHS) + len(LENGTHS), VOCAB, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("num_rows", [1, 3, 1000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_are_the_same_together_and_alone(
    monkeypatch: pytest.MonkeyPatch, num_rows: int, dtype: torch.dtype
) -> None:
    monkeypatch.setattr(ratio, "rows_at_once", lambda logits: num_rows)
    logits = LOGITS.to(dtype)
    probs, tops = target_probs_of(verified(), logits, VOCAB - 1)
    assert probs.shape == (len(LENGTHS), max(LENGTHS) + 1, VOCAB - 1)
    assert tops.shape == probs.shape[:2]
    for number, one in enumerate(verified()):
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

    together = decide_ratio_round(verified(), LOGITS, VOCAB, 1, records=True)
    monkeypatch.setattr(ratio, "target_probs_of", noting)
    monkeypatch.setattr(ratio, "MAX_ELEMENTS", 4 * VOCAB)
    assert decide_ratio_round(verified(), LOGITS, VOCAB, 1, records=True) == together
    assert shapes == [(2, 2), (1, 3), (1, 4)]
