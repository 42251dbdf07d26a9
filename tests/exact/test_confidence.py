"""A draft ends where the draft model's own confidence is spent; under the ratio rule it never does."""

import math
from typing import Any

import pytest
import torch

from draft_node.core.generation import Generation
from goodspeed.drafting.drafter import Drafter
from goodspeed.drafting.proposing import Propose, Proposed
from goodspeed.exact.confidence import AT_NO_CONFIDENCE, BEHIND_MASKS, acceptance_probabilities
from goodspeed.wire.fields import Verification
from goodspeed.wire.messages import Sampling
from tests.micro import make_checkpoint, make_runner

CHECKPOINT = make_checkpoint(1)
PROMPT = (5, 9, 2, 40, 33, 7)


def draft(
    least_probability: float, *, verification: Verification = "match", temperature: float = 1.0, **changes: Any
) -> Proposed:
    drafter = Drafter(CHECKPOINT, make_runner(CHECKPOINT))
    request = Generation(bytes(16), PROMPT, Sampling(temperature, seed=3), 50, verification=verification)
    drafter.add(Propose(request, 1, 1, PROMPT, 12, least_probability=least_probability, **changes))
    while True:
        if done := drafter.step():
            return done[0]


def probabilities_of(tokens: tuple[int, ...]) -> list[float]:
    """Computes the probabilities by one pass of the draft model over all of the text."""
    model = make_checkpoint(1).model  # that no runner has made its own
    with torch.inference_mode():
        logits = model(torch.tensor([[*PROMPT, *tokens]])).logits[0, len(PROMPT) - 1 : -1]
    probs = logits.softmax(-1)[torch.arange(len(tokens)), torch.tensor(tokens)]
    return [AT_NO_CONFIDENCE + (1 - AT_NO_CONFIDENCE) * float(p) for p in probs]


def test_probabilities_by_hand():
    probs = torch.tensor([[0.5, 0.25, 0.25], [1.0, 1e-30, 1e-30]])
    found = acceptance_probabilities(probs, torch.tensor([0, 2])).tolist()
    assert found == pytest.approx([AT_NO_CONFIDENCE + (1 - AT_NO_CONFIDENCE) * 0.5, AT_NO_CONFIDENCE])
    found = acceptance_probabilities(probs, torch.tensor([0, 2]), [False, True]).tolist()
    assert found == pytest.approx([AT_NO_CONFIDENCE + (1 - AT_NO_CONFIDENCE) * 0.5, BEHIND_MASKS])


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_draft_ends_with_the_token_that_spends_the_probability(temperature):
    whole = draft(0.0, temperature=temperature)
    assert len(whole.tokens) == 12
    short = draft(0.3, temperature=temperature)
    assert short.tokens == whole.tokens[: len(short.tokens)]
    probabilities = probabilities_of(whole.tokens)
    assert math.prod(probabilities[: len(short.tokens)]) < 0.3 <= math.prod(probabilities[: len(short.tokens) - 1])


def test_under_the_ratio_rule_a_draft_is_not_cut_for_what_was_drawn():
    assert len(draft(0.9, verification="ratio").tokens) == 12


def test_probabilities_are_told_under_match():
    told = draft(0.0)
    assert told.probabilities == pytest.approx(probabilities_of(told.tokens), rel=1e-4)
    assert draft(0.0, verification="ratio").probabilities is None
