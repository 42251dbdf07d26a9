"""Probabilities of acceptance by the draft model's confidence; `test_drafter.py` has what ends with them."""

import pytest
import torch

from goodspeed.drafting.confidence import AT_NO_CONFIDENCE, BEHIND_MASKS, acceptance_probabilities


def test_probabilities_by_hand():
    probs = torch.tensor([[0.5, 0.25, 0.25], [1.0, 1e-30, 1e-30]])
    found = acceptance_probabilities(probs, torch.tensor([0, 2])).tolist()
    assert found == pytest.approx([AT_NO_CONFIDENCE + (1 - AT_NO_CONFIDENCE) * 0.5, AT_NO_CONFIDENCE])
    found = acceptance_probabilities(probs, torch.tensor([0, 2]), [False, True]).tolist()
    assert found == pytest.approx([AT_NO_CONFIDENCE + (1 - AT_NO_CONFIDENCE) * 0.5, BEHIND_MASKS])
