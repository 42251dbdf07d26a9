"""A draft ends where the draft model's own confidence is spent; under the ratio rule it never does."""

import math
from typing import Any
from unittest.mock import ANY

import pytest
import torch
from msgspec.structs import replace

from draft_node.core.actions import Propose, Proposed, Request
from draft_node.model.confidence import AT_NO_CONFIDENCE, acceptance_chances
from draft_node.model.drafter import THRESHOLD, Drafter
from goodspeed.wire.fields import Verification
from goodspeed.wire.messages import Sampling
from tests.micro import make_checkpoint, make_runner

CHECKPOINT = make_checkpoint(1)
PROMPT = (5, 9, 2, 40, 33, 7)


def draft(
    min_odds: float | None,
    *,
    verification: Verification = "match",
    length: int = 12,
    temperature: float = 1.0,
    least_odds: float = 0.0,
    wants_chances: bool = False,
    **changes: Any,
) -> Proposed:
    drafter = Drafter(CHECKPOINT, make_runner(CHECKPOINT), min_odds=min_odds)
    request = Request(bytes(16), PROMPT, Sampling(temperature, seed=3), 50, verification=verification)
    asked = Propose(request, 1, 1, PROMPT, length, least_odds=least_odds, wants_chances=wants_chances, **changes)
    drafter.add(asked)
    while True:
        if done := drafter.step():
            return done[0]


def chances_of(tokens: tuple[int, ...]) -> list[float]:
    """Computes the chances by one pass of the draft model over all of the text."""
    model = make_checkpoint(1).model  # that no runner has made its own
    with torch.inference_mode():
        logits = model(torch.tensor([[*PROMPT, *tokens]])).logits[0, len(PROMPT) - 1 : -1]
    probs = logits.softmax(-1)[torch.arange(len(tokens)), torch.tensor(tokens)]
    return [AT_NO_CONFIDENCE + (1 - AT_NO_CONFIDENCE) * float(p) for p in probs]


def test_chances_by_hand():
    logits = torch.log(torch.tensor([[0.5, 0.25, 0.25], [1.0, 1e-30, 1e-30]]))
    found = acceptance_chances(logits, torch.tensor([0, 2])).tolist()
    assert found == pytest.approx([AT_NO_CONFIDENCE + (1 - AT_NO_CONFIDENCE) * 0.5, AT_NO_CONFIDENCE])


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_draft_ends_with_the_token_that_spends_the_odds(temperature):
    whole = draft(0.0, temperature=temperature)
    assert len(whole.tokens) == 12
    assert whole.odds == 1.0  # not asked
    short = draft(0.3, temperature=temperature)
    assert short.tokens == whole.tokens[: len(short.tokens)]
    chances = chances_of(whole.tokens)
    assert short.odds == pytest.approx(math.prod(chances[: len(short.tokens)]), rel=1e-4)
    assert short.odds < 0.3 <= math.prod(chances[: len(short.tokens) - 1])


def test_lower_odds_let_it_go_on():
    lengths = [len(draft(odds).tokens) for odds in (0.9, 0.3, 0.05, 1e-9)]
    assert lengths == sorted(lengths)
    assert lengths[0] < lengths[-1]


def test_under_the_ratio_rule_a_draft_is_not_cut_for_what_was_drawn():
    assert len(draft(0.9, verification="ratio").tokens) == 12


def test_by_default_a_draft_ends_where_the_verify_node_would_not_look():
    told = draft(None, least_odds=0.02, wants_chances=True)
    assert told.tokens == draft(0.02).tokens != draft(THRESHOLD).tokens
    assert len(draft(None, verification="ratio", least_odds=0.9, wants_chances=True).tokens) == 12


def test_of_a_verify_node_that_tells_no_odds_the_threshold_ends_it():
    assert draft(None) == replace(draft(THRESHOLD), drafting_s=ANY)


def test_a_threshold_that_is_set_ends_it_alone():
    """So that the rules can be compared: they never both cut."""
    assert draft(0.05, least_odds=0.9, wants_chances=True).tokens == draft(0.05).tokens


def test_unasked_the_verify_nodes_word_counts_beside_a_threshold():
    """What is drafted unasked is asked for piece by piece, and the verify node's word is about all of it."""
    found = draft(0.05, least_odds=0.9, wants_chances=True, unasked=True)
    assert found.tokens == draft(0.9).tokens != draft(0.05).tokens


def test_chances_are_told_where_they_are_wanted():
    told = draft(0.0, wants_chances=True)
    assert told.chances == pytest.approx(chances_of(told.tokens), rel=1e-4)
    assert draft(0.0).chances is None
    assert draft(0.0, verification="ratio", wants_chances=True).chances is None


def test_chances_stand_beside_their_own_tokens_whatever_is_taken_over():
    """A proposal ahead was begun without chances, or with; one more token goes on from it."""
    for early in (False, True):
        drafter = Drafter(CHECKPOINT, make_runner(CHECKPOINT))
        request = Request(bytes(16), PROMPT, Sampling(1.0, seed=3), 50)
        whole = draft(0.0).tokens
        drafter.add(Propose(request, 1, 1, PROMPT, 6, ahead=True, wants_chances=early))
        for _ in range(4):
            drafter.step()
        drafter.add(Propose(request, 1, 2, (*PROMPT, whole[0]), 5, wants_chances=True))
        done: list[Proposed] = []
        while not done:
            done = drafter.step()
        assert done[0].tokens == whole[1:6]
        assert done[0].chances == (pytest.approx(chances_of(whole[:6])[1:], rel=1e-4) if early else None)
