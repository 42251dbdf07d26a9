"""A draft model that predicts several tokens in one forward pass (PARD): with masks for the tokens not known yet."""

import random
from dataclasses import replace as with_changes
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from goodspeed.drafting.confidence import AT_NO_CONFIDENCE, BEHIND_MASKS
from goodspeed.drafting.drafter import Drafter
from goodspeed.engine.paged.chunks import Chunk
from goodspeed.errors import PromptError
from goodspeed.exact import proposals
from goodspeed.exact.noise import match_noise
from goodspeed.exact.sampling import SamplingBatch, to_probs
from goodspeed.wire.generation import LogitRules, Sampling, TokenBias
from tests.drafting.test_drafter import SAMPLINGS, Fixed, make_request, nodes_of, run, verdict, wanted
from tests.exact.rounded import rounded
from tests.micro import make_checkpoint, make_engine

MASK, NUM_TOKENS, K = 60, 60, 4
CHECKPOINT = with_changes(make_checkpoint(1, num_tokens=NUM_TOKENS), mask_id=MASK, num_parallel=K)
RULES = [None, LogitRules(logit_bias=(TokenBias(9, 2.0),))]


def make_drafter(num_pages=256, checkpoint=CHECKPOINT, **options):
    drafter = Drafter(checkpoint, make_engine(checkpoint, num_pages), **options)
    drafter.widths = Fixed(4)
    return drafter


def fresh(propose):
    return run(make_drafter(), propose)[0].tokens


def plain_logits(text, num_masks):
    """The logits after a text and so many masks, by plain transformers."""
    with torch.inference_mode():
        ids = torch.tensor([[*text, *[MASK] * num_masks]])
        logits = make_checkpoint(1).model(ids, use_cache=False).logits[0, -1:, :NUM_TOKENS]
    return logits.clone()


def by_hand(request, num_tokens):
    """K tokens from K separate passes with 0, 1, ... masks after the text; then the same behind these."""
    text = list(request.prompt)
    sampling = SamplingBatch.of([request.sampling])
    while len(text) - len(request.prompt) < num_tokens:
        drawn = []
        for num_masks in range(min(K, num_tokens - len(text) + len(request.prompt))):
            logits = plain_logits(text, num_masks)
            for bias in request.logit_rules.logit_bias if request.logit_rules else ():
                logits[0, bias.token] += bias.bias
            scores = logits
            if request.sampling.temperature:
                position = torch.tensor([len(text) + num_masks])
                noise = match_noise(torch.tensor([request.sampling.seed]), position, NUM_TOKENS)
                scores = to_probs(logits, sampling) / noise
            drawn.append(int(scores.argmax()))
        text += drawn
    return tuple(text[len(request.prompt) :])


@pytest.mark.parametrize("rules", RULES, ids=["plain", "ruled"])
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_one_pass_drafts_what_separate_passes_with_masks_would(sampling, rules):
    request = make_request(sampling=sampling, logit_rules=rules)
    assert fresh(wanted(request, request.prompt, 10)) == by_hand(request, 10)


def test_tokens_behind_masks_are_claimed_for_what_they_are():
    """The first of a pass knows all tokens before it, the others do not."""
    request = make_request()
    [proposed] = run(make_drafter(), wanted(request, request.prompt, 10))
    for place, (token, claimed) in enumerate(zip(proposed.tokens, proposed.probabilities, strict=True)):
        depth = place % K
        text = [*request.prompt, *proposed.tokens[: place - depth]]
        confident = float(plain_logits(text, depth).softmax(-1)[0, token])
        least = BEHIND_MASKS if depth else AT_NO_CONFIDENCE
        assert claimed == pytest.approx(least + (1 - least) * confident, abs=1e-4)


@pytest.mark.parametrize("verification", ["match", "ratio"])
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_after_any_verdicts_it_proposes_what_a_fresh_one_would(verification, sampling):
    rng = random.Random(7)
    request = make_request(verification=verification, sampling=sampling)
    drafter, base = make_drafter(num_pages=20), list(request.prompt)
    for number in range(12):
        propose = wanted(request, base, rng.choice([0, 1, 3, 6, 9]), number)
        [proposed] = run(drafter, propose)
        assert len(proposed.tokens) == propose.length
        assert proposed.tokens == fresh(propose)
        base = [token % NUM_TOKENS for token in verdict(rng, base, proposed.tokens)]


def test_sessions_of_different_needs_share_a_pass():
    """Some in doubt with alternatives, some by ratio, one with a bias, one that stops: each as it would alone.

    Probabilities of a proposal have 16 bits: float32 sums of another batch may round to the next step.
    """
    stops, greedy = {"stop_ids": tuple(range(0, NUM_TOKENS, 3))}, {"sampling": Sampling(temperature=0.0)}
    needs: list[Any] = [{}, {"verification": "ratio"}, {"logit_rules": RULES[1]}, stops, greedy]
    requests = [make_request(number, **changes) for number, changes in enumerate(needs, 1)]
    proposes = [replace(wanted(each, each.prompt, 7), wants_alternatives=each is requests[0]) for each in requests]
    together = run(make_drafter(), *proposes)
    for found, propose in zip(together, proposes, strict=True):
        [alone] = run(make_drafter(), propose)
        assert (found.proposal is None) == (alone.proposal is None)
        if found.proposal is not None and alone.proposal is not None:
            both = [proposals.decode(one.proposal, len(one.tokens), NUM_TOKENS, one.tokens) for one in (found, alone)]
            torch.testing.assert_close(*both, atol=2**-15, rtol=0)
        if found.parents is None:
            assert found.tokens == alone.tokens
        else:
            one, other = (nodes_of(each).likeliest(64) for each in (found, alone))
            assert (one.tokens, one.parents) == (other.tokens, other.parents)
            assert one.probabilities == pytest.approx(other.probabilities, abs=1e-5)
    assert together[0].parents not in (None, tuple(range(-1, len(together[0].tokens) - 1)))
    assert len(together[3].tokens) < 7


def test_under_ratio_each_position_sends_the_distribution_that_it_was_drawn_from():
    sampling = Sampling(temperature=0.7, seed=2)
    request = make_request(verification="ratio", sampling=sampling)
    [proposed] = run(make_drafter(kind="lattice", k=16), wanted(request, request.prompt, K))
    sent = proposals.decode(proposed.proposal, K, NUM_TOKENS, proposed.tokens)
    for place, probs in enumerate(sent):
        logits = plain_logits(request.prompt, place)
        made = proposals.make(to_probs(logits, SamplingBatch.of([sampling])), "lattice", k=16)
        assert torch.allclose(probs, rounded(made)[0], atol=1e-4)


@pytest.mark.parametrize("mask_id", [MASK, 7], ids=["beyond-the-tokenizer", "a-token"])
@pytest.mark.parametrize("verification", ["match", "ratio"])
def test_a_mask_is_never_drafted(mask_id, verification):
    """Published checkpoints use an id of their tokenizer's, too; the model here draws it often without being told."""
    model: Any = make_checkpoint(1).model
    with torch.no_grad():
        model.lm_head.weight[mask_id] = 20 * model.lm_head.weight[3]  # the largest or the smallest logit by far
    checkpoint = with_changes(CHECKPOINT, model=model, mask_id=mask_id)
    request = make_request(verification=verification)
    [proposed] = run(make_drafter(checkpoint=checkpoint), wanted(request, request.prompt, 40))
    assert len(proposed.tokens) == 40
    assert mask_id not in proposed.tokens
    ordinary = with_changes(checkpoint, mask_id=None, num_parallel=1, num_tokens=64)
    assert mask_id in run(make_drafter(checkpoint=ordinary), wanted(request, request.prompt, 40))[0].tokens


def test_masks_count_towards_the_context():
    with pytest.raises(PromptError, match="129 tokens do not fit"):
        make_engine(CHECKPOINT).forward([Chunk("a", [1] * 126, 1, num_masks=3)])
