"""Training of a draft model that drafts several tokens in one pass: many masks at once see what they would alone."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from goodspeed.embedded import models
from training import depths, family, parallel
from training.parallel import Masks

NUM_TOKENS, K, LENGTH = 28, 4, 12


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    torch.manual_seed(3)
    shape = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    return LlamaForCausalLM(LlamaConfig(**shape, vocab_size=32, initializer_range=0.3, pard_token=NUM_TOKENS)).eval()


def drawn(seed: int = 0, length: int = LENGTH, num_parallel: int = K) -> Masks:
    return Masks.drawn(length, num_parallel, torch.Generator().manual_seed(seed))


def test_masks_of_many_positions_predict_what_each_would_alone(model: LlamaForCausalLM) -> None:
    text = torch.randint(0, NUM_TOKENS, (2, LENGTH), generator=torch.Generator().manual_seed(1))
    masks = drawn()
    with torch.inference_mode():
        found = parallel.predicted(model, text, masks)
        for number, (after, depth) in enumerate(zip(masks.after.tolist(), masks.depth.tolist(), strict=True)):
            alone = torch.cat([text[:, : after + 1], torch.full((2, depth), NUM_TOKENS)], dim=1)
            expected = model(input_ids=alone).logits[:, -1, :NUM_TOKENS]
            torch.testing.assert_close(found[:, LENGTH + number], expected, atol=1e-5, rtol=0)
        expected = model(input_ids=text).logits[..., :NUM_TOKENS]
        torch.testing.assert_close(found[:, :LENGTH], expected, atol=1e-5, rtol=0)


def test_deeper_masks_are_fewer_and_none_lacks_the_ones_before_it() -> None:
    masks = drawn(length=4000, num_parallel=8)
    kept = {(after, depth) for after, depth in zip(masks.after.tolist(), masks.depth.tolist(), strict=True)}
    assert all((after, depth - 1) in kept for after, depth in kept if depth > 1)
    shares = [sum(depth == d for _, depth in kept) / 4000 for d in range(1, 8)]
    expected = [max(parallel.KEPT**d, parallel.LEAST_KEPT) for d in range(7)]
    assert shares == pytest.approx(expected, abs=0.03)
    assert int(masks.positions.max()) < 4000  # every mask has a label


def test_the_labels_are_those_of_the_masks_own_place(model: LlamaForCausalLM) -> None:
    """By hand: the loss of a mask is the cross entropy with the target's probabilities after its position."""
    text, masks = torch.arange(LENGTH)[None], drawn()
    wanted = torch.randn(1, LENGTH, NUM_TOKENS, generator=torch.Generator().manual_seed(2)).softmax(-1)
    with torch.inference_mode():
        given = parallel.predicted(model, text, masks)[0].log_softmax(-1)
        at_text = -(given[:LENGTH] * wanted[0]).sum(-1).mean()
        places = (masks.after + masks.depth).tolist()
        at_masks = torch.stack([-(given[LENGTH + n] * wanted[0, at]).sum() for n, at in enumerate(places)]).mean()
        found = parallel.loss(model, text, wanted, masks)
    assert found.item() == pytest.approx((at_text + at_masks).item(), rel=0.02)  # training computes in bfloat16


def test_it_begins_as_the_model_that_it_is_made_from() -> None:
    model = family.widened("tiny-draft-p", models.WEIGHTS, "tiny-draft-m").eval()
    origin = family.load("tiny-draft-m", models.path("tiny-draft-m")).eval()
    ids = torch.tensor([[5, 900, 17]])
    with torch.inference_mode():
        torch.testing.assert_close(model(input_ids=ids).logits[..., :4096], origin(input_ids=ids).logits)


def test_acceptance_by_depth_by_hand() -> None:
    """Four drafts, of which 8, 2, 1 and 0 tokens were accepted."""
    rates = depths.rates([4, 3, 2, 1, 1, 1, 1, 1, 1])
    assert rates == ([3 / 4, 2 / 3, 1 / 2, 1, 1, 1, 1, 1], 11 / 4)


def test_drafts_are_counted_up_to_their_first_wrong_token(model: LlamaForCausalLM) -> None:
    """By hand: what each draft of greedy tokens has in common with a text of which token 4 was drawn otherwise."""
    prompt, written = [1, 2, 3], [4, 5, 6, 7, 8, 9, 10, 11, 12, 13]
    tokens = depths.probabilities(model, prompt, written, 0.0).argmax(-1)
    draws = tokens[0].tolist() + tokens[1:, -1].tolist()
    draws[4] = (draws[4] + 1) % NUM_TOKENS
    expected = [3] + [0] * depths.DEPTH
    for start, draft in enumerate(tokens.tolist()):
        same = [token == draws[start + depth] for depth, token in enumerate(draft)]
        num_accepted = same.index(False) if False in same else depths.DEPTH
        expected = [count + (0 < depth <= num_accepted) for depth, count in enumerate(expected)]
    assert depths.reached(model, prompt, written, 0.0, 0, torch.tensor(draws)).tolist() == expected
    assert expected[4] >= 1
    assert expected[5] <= 2


def test_at_depth_1_a_draft_knows_all_before_it(model: LlamaForCausalLM) -> None:
    prompt, written = [1, 2, 3], [4, 5, 6, 7, 8, 9, 10, 11, 12, 13]
    probs = depths.probabilities(model, prompt, written, 1.0)
    assert probs.shape == (3, depths.DEPTH, NUM_TOKENS)
    for start in range(3):
        with torch.inference_mode():
            alone = model(input_ids=torch.tensor([prompt + written[:start]])).logits[0, -1, :NUM_TOKENS].softmax(-1)
        torch.testing.assert_close(probs[start, 0], alone, atol=1e-5, rtol=0)
