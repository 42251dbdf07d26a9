"""Drafts: the draw, the stops, and that nothing of them stays behind."""

import random

import pytest
import torch

from goodspeed.exact.sampling import SamplingBatch, choose
from goodspeed.ngram.drafting import draft
from goodspeed.ngram.index import GrowingText, NgramIndex
from goodspeed.ngram.matching import blend, find, follow
from goodspeed.wire.messages import Sampling

GREEDY = Sampling(temperature=0.0)
VOCAB = 12


def random_case(seed):
    rng = random.Random(seed)
    history = NgramIndex()
    for _ in range(10):
        history.add([rng.randrange(rng.choice((3, VOCAB))) for _ in range(30)])
    return GrowingText([rng.randrange(rng.choice((3, VOCAB))) for _ in range(20)]), [history]


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_a_token_is_the_target_s_own_draw_from_the_blend(temperature):
    num_drafted = num_likeliest = 0
    for seed in range(300):
        text, histories = random_case(seed)
        sampling = Sampling(temperature, seed=seed * 7919)
        drafted = draft(text, histories, 1, sampling=sampling, least_probability=0.0)
        shares, _ = blend(follow(find(text, histories), 0))
        if not shares:
            assert drafted == ((), ())
            continue
        logits = torch.full((1, VOCAB), float("-inf"))
        logits[0, list(shares)] = torch.tensor(list(shares.values())).log()
        alike = Sampling(1.0, seed=sampling.seed)  # the blend is of texts at this temperature already
        expected = int(choose(logits, SamplingBatch.of([alike]), torch.tensor([len(text)])))
        if temperature == 0:  # of equally likely tokens the one that was found first
            expected = next(token for token, share in shares.items() if share == max(shares.values()))
        assert drafted.tokens == (expected,)
        num_drafted += 1
        num_likeliest += shares[expected] == max(shares.values())
    assert num_drafted > 200
    assert (num_likeliest == num_drafted) == (temperature == 0)


def test_each_token_is_drawn_at_its_own_position():
    """One draft of several tokens is what drafts of one token would be, each after the one before."""
    history = NgramIndex()
    rng = random.Random(1)
    for _ in range(12):
        history.add([1, 2, *(rng.choice((3, 4)) for _ in range(4))])
    differing = set()
    for seed in range(40):
        sampling = Sampling(1.0, seed=seed)
        tokens = draft(GrowingText([1, 2]), [history], 2, sampling=sampling, least_probability=0.0).tokens
        after = GrowingText([1, 2, tokens[0]])
        assert draft(after, [history], 1, sampling=sampling, least_probability=0.0).tokens == tokens[1:]
        differing.add(tokens)
    assert len(differing) == 4


def test_a_match_in_the_text_itself_runs_on_into_the_draft():
    text = GrowingText([5, 6, 7] * 6)
    assert draft(text, [], 7, sampling=GREEDY).tokens == (5, 6, 7, 5, 6, 7, 5)


@pytest.mark.parametrize("tokens", [(), (1,), (1, 2), (1, 2, 3)])
def test_nothing_is_drafted_where_nothing_is_known(tokens):
    assert draft(GrowingText(tokens), [NgramIndex()], 8, sampling=GREEDY) == ((), ())


@pytest.mark.parametrize("least_probability", [0.0, 0.1, 0.3, 0.6, 0.9, 1.0])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_draft_ends_before_the_product_of_probabilities_is_below_the_least(least_probability, temperature):
    lengths = set()
    for seed in range(60):
        text, histories = random_case(seed)
        sampling = Sampling(temperature, seed=seed)
        tokens, probabilities = draft(text, histories, 8, sampling=sampling, least_probability=least_probability)
        further, of_all = draft(text, histories, 8, sampling=sampling, least_probability=0.0)
        path = [torch.tensor(of_all[:n], dtype=torch.float64).prod().item() for n in range(1, len(of_all) + 1)]
        expected = next((n for n, product in enumerate(path) if product < least_probability), len(path))
        assert (tokens, probabilities) == (further[:expected], of_all[:expected])
        assert all(0 < one < 1 for one in probabilities)
        lengths.add(len(tokens))
    assert max(lengths) == {0.0: 8, 1.0: 0}.get(least_probability, max(lengths))


def test_banned_tokens_are_never_drafted():
    text = GrowingText([1, 2, 3, 1, 2, 3, 1, 2])
    assert draft(text, [], 1, sampling=GREEDY, least_probability=0).tokens == (3,)
    assert draft(text, [], 1, sampling=GREEDY, least_probability=0, banned=frozenset({3})).tokens == ()
    other = NgramIndex()
    other.add([1, 2, 4])
    assert draft(text, [other], 1, sampling=GREEDY, least_probability=0, banned={3}).tokens == (4,)


def test_the_text_is_as_before_whatever_happens():
    class Failing(NgramIndex):
        def match(self, end, found):
            super().match(end, found)
            found[2] = [(None, 0)]

    text = GrowingText([1, 2, 3, 1, 2, 3, 1, 2])
    before = text.tokens[:]
    draft(text, [], 8, sampling=GREEDY)
    assert text.tokens == before
    with pytest.raises(TypeError):
        draft(text, [Failing()], 8, sampling=GREEDY)
    assert text.tokens == before


def test_long_matches_and_agreement_raise_the_probability():
    def probabilities(text, *texts):
        history = NgramIndex()
        for tokens in texts:
            history.add(tokens)
        return draft(GrowingText(text), [history], 1, sampling=GREEDY, least_probability=0).probabilities[0]

    short, longer = probabilities([1, 2], [1, 2, 3]), probabilities([7, 8, 9, 1, 2], [7, 8, 9, 1, 2, 3])
    often, split = probabilities([1, 2], *[[1, 2, 3]] * 4), probabilities([1, 2], *[[1, 2, 3]] * 3, [1, 2, 4])
    assert split < short < longer
    assert split < short < often
