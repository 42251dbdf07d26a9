"""The experiment on AdaSpec's figures: the same requests for every policy, speed by hand, and what confidence tells."""

from dataclasses import replace

import pytest

from experiments.adaspec import (
    CALIBRATED,
    CLAIMED,
    KNOWN_BY,
    POLICIES,
    WITHOUT,
    Config,
    Verified,
    binned,
    draw,
    expected_error,
    experiment,
    requests,
    served,
    verified,
)
from experiments.harness.experiment import HERE, load
from experiments.simulation.texts.proposals import ModelPath, Text, written

QUICK = load(HERE / "configs" / "adaspec.toml", "quick", Config)
TINY = replace(QUICK, duration_s=3.0)


def test_all_of_a_services_requests_ask_for_the_same_level():
    plain, level = requests(QUICK, "trace 1", None), requests(QUICK, "trace 1", 0.01)
    assert [one.at_s for one in plain] == [one.at_s for one in level]
    assert [one.acceptance for one in plain] == [one.acceptance for one in level]
    assert {one.slo for one in plain} == {None}
    assert {one.slo.tpot_s for one in level} == {0.01}


def test_fixed_lengths_are_fixed():
    by_policy = {policy: served(TINY, "7B", "trace 1", policy) for policy in ("SD 3", WITHOUT)}
    assert by_policy["SD 3"].drafted == pytest.approx(3.0, abs=0.3)  # less at the texts' ends
    assert by_policy[WITHOUT].drafted == 0.0


@pytest.mark.thorough
def test_every_policy_is_told_for_every_service_and_level():
    outcome = experiment(TINY)
    assert [(one["traffic"], one["policy"]) for one in outcome.rows] == [
        (name, policy) for name in (*TINY.traffic, "batch 4") for policy in POLICIES
    ]
    assert all(one["speedup"] == 1.0 for one in outcome.rows if one["policy"] == WITHOUT)
    assert [one["policy"] for one in outcome.curves if "policy" in one] == list(POLICIES)
    assert len(draw(TINY, outcome).axes) == 1 + 3  # speeds; draft models


def text(agreed: str) -> Text:
    """One in which a draft model is sure of every token."""
    sure = written([0] * len(agreed))
    path = ModelPath(ranks=agreed, confidence=sure, p=sure, q=sure, off_path="")
    nothing = "," * (len(agreed) - 1)
    return Text(
        domain="chat", temperature=1.0, seed=0, prompt_len=1, own=nothing, history=nothing, models={"sure": path}
    )


def test_a_draft_is_foretold_before_its_outcome_is_learned():
    """The first draft of a client is foretold as claimed, however wrong; those after it are not."""
    drafts = list(verified([text("0"), text("0")], "sure", 4))
    first, second = (draft.probabilities for draft in drafts)
    assert [draft.num_accepted for draft in drafts] == [0, 0]
    assert first[CLAIMED] == second[CLAIMED] == [1.0]
    assert first[CALIBRATED] == pytest.approx([1.0], abs=0.01)
    assert second[CALIBRATED][0] < 0.85
    assert expected_error(binned(drafts, CLAIMED)) == 1.0


def test_drafts_follow_each_other_along_a_text():
    """After a wrong token, and after a whole draft, comes the target's own."""
    drafts = list(verified([text("11011110")], "sure", 2))
    assert [draft.num_accepted for draft in drafts] == [2, 2, 1]
    assert len(list(verified([text("1101")], "sure", 2))[-1].probabilities[CLAIMED]) == 1


def test_the_calibration_error_by_hand():
    """Tokens behind the first wrong one tell nothing."""
    known = {by: [0.95, 0.65, 0.95] for by in KNOWN_BY}
    bins = binned([Verified(known, 1), Verified(known, 2)], CLAIMED)
    assert [(one["tokens"], one["agreed"]) for one in bins] == [(2, 0.5), (3, pytest.approx(2 / 3))]
    assert expected_error(bins) == pytest.approx(0.4 * 0.15 + 0.6 * (0.95 - 2 / 3))


def test_what_confidence_tells_is_told_by_draft_model_temperature_and_domain():
    alone = replace(QUICK, machines=[], temperatures=[1.0])
    outcome = experiment(alone)
    known = outcome.facts["calibration"]
    assert list(known) == ["smollm2-first-24", "smollm2-q4_0", "smollm2-draft"]
    for temperatures in known.values():
        assert list(temperatures) == ["1"]
        for domains in temperatures.values():
            assert len(domains) == 8
            assert all(one["after"] < one["before"] and one["num"] > 1000 for one in domains.values())
    assert len(outcome.findings) == 3
