"""Confidence is compared with acceptance along texts made by hand."""

import pytest

from experiments.simulation.texts import reliability
from experiments.simulation.texts.proposals import ModelPath, Text, written
from experiments.simulation.texts.reliability import CALIBRATED, CLAIMED, binned, expected_error, verified


def text(agreed: str) -> Text:
    """One in which a draft model is sure of every token."""
    sure, nothing = written([0] * len(agreed)), "," * (len(agreed) - 1)
    models = {"sure": ModelPath(ranks=agreed, confidence=sure, p=sure, q=sure, off_path="")}
    return Text(domain="chat", temperature=1.0, seed=0, prompt_len=1, own=nothing, history=nothing, models=models)


def test_a_draft_is_foretold_before_its_outcome_is_learned():
    """The first draft of a client is foretold as claimed, however wrong; those after it are not."""
    drafts = list(verified([text("0"), text("0")], "sure", 4))
    first, second = (draft.probabilities for draft in drafts)
    assert [draft.num_accepted for draft in drafts] == [0, 0]
    assert first[CLAIMED] == second[CLAIMED] == [1.0]
    assert first[CALIBRATED] == pytest.approx([1.0], abs=0.01)
    assert second[CALIBRATED][0] < 0.85
    assert expected_error(binned(drafts, CLAIMED)) == 1.0


def test_the_calibration_error_by_hand():
    """Tokens behind the first wrong one tell nothing."""
    known = {by: [0.95, 0.65, 0.95] for by in reliability.KNOWN_BY}
    bins = binned([reliability.Verified(known, 1), reliability.Verified(known, 2)], CLAIMED)
    assert [(one["tokens"], one["agreed"]) for one in bins] == [(2, 0.5), (3, pytest.approx(2 / 3))]
    assert expected_error(bins) == pytest.approx(0.4 * 0.15 + 0.6 * (0.95 - 2 / 3))
