"""Probabilities against a slow reference; draws against their law, and against what must not change them."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from goodspeed.exact.noise import Role
from goodspeed.exact.sampling import SamplingBatch, choose, choose_scored, draw, runners_up, sample, to_probs, uniform
from goodspeed.wire.messages import Sampling
from tests.exact.chi_square import REJECT, fits, independent

NUM_DRAWS = 40_000


def batch_of(*samplings: Sampling) -> SamplingBatch:
    return SamplingBatch.of(samplings)


def probs_of(logits: list[float], **options: Any) -> list[float]:
    return to_probs(torch.tensor([logits]), batch_of(Sampling(**options)))[0].tolist()


# Probabilities


def test_a_row_by_hand():
    logits = [math.log(p) for p in (0.1, 0.4, 0.2, 0.3)]
    assert probs_of(logits) == pytest.approx([0.1, 0.4, 0.2, 0.3])
    assert probs_of(logits, temperature=0.5) == pytest.approx([p * p / 0.3 for p in (0.1, 0.4, 0.2, 0.3)])
    assert probs_of(logits, top_k=2) == pytest.approx([0, 4 / 7, 0, 3 / 7])
    assert probs_of(logits, top_p=0.75) == pytest.approx([0, 4 / 9, 2 / 9, 3 / 9])
    assert probs_of(logits, top_p=0.65) == pytest.approx([0, 4 / 7, 0, 3 / 7])
    assert probs_of(logits, temperature=0) == [0, 1, 0, 0]


def test_top_p_counts_within_what_top_k_left():
    logits = [math.log(p) for p in (0.4, 0.3, 0.2, 0.1)]
    # Of 4/7 and 3/7 the first reaches 0.5; of the whole 0.4 it would not.
    assert probs_of(logits, top_k=2, top_p=0.5) == [1, 0, 0, 0]
    assert probs_of(logits, top_p=0.5) == pytest.approx([4 / 7, 3 / 7, 0, 0])


def test_equals_of_the_last_token_kept_are_kept():
    assert probs_of([1.0, 2.0, 1.0, 0.0], top_k=2) == pytest.approx(probs_of([1.0, 2.0, 1.0, -math.inf]))
    assert probs_of([0.0, 0.0, 0.0, -1.0], top_p=0.01) == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0])


@pytest.mark.parametrize("vocab", [7, 1000, 4096])
def test_greedy_takes_the_lowest_id_among_equals(vocab):
    logits = torch.zeros(3, vocab)
    logits[1, vocab // 2 :] = 1.0
    logits[2, vocab - 1] = 1.0
    greedy = SamplingBatch.of([Sampling(temperature=0.0)], [3])
    expected = [0, vocab // 2, vocab - 1]
    assert to_probs(logits, greedy).argmax(-1).tolist() == expected
    assert choose(logits, greedy, torch.arange(3)).tolist() == expected


@pytest.mark.parametrize("temperature", [1e-300, 1e-30, 1e-6])
def test_a_tiny_temperature_is_nearly_greedy(temperature):
    assert probs_of([3.0, 29.0, 29.001, -50.0], temperature=temperature) == [0, 0, 1, 0]


def test_padding_beyond_the_tokenizer_is_cut():
    logits = torch.tensor([[0.0, 1.0, 9.0]])
    for temperature in (0.0, 0.7):
        sampling = batch_of(Sampling(temperature=temperature))
        cut = to_probs(logits, sampling, num_tokens=2)
        assert torch.equal(cut, to_probs(logits[:, :2], sampling))
        assert choose(logits, sampling, torch.tensor([0]), num_tokens=2) < 2
    assert to_probs(logits, batch_of(Sampling()), num_tokens=99).shape == (1, 3)


def test_half_precision_logits_give_full_precision_probabilities():
    logits = torch.randn(2, 50, generator=torch.manual_seed(0))
    sampling = batch_of(Sampling(), Sampling(temperature=0.7, top_k=5))
    for dtype in (torch.bfloat16, torch.float16):
        assert torch.equal(to_probs(logits.to(dtype), sampling), to_probs(logits.to(dtype).float(), sampling))
    assert to_probs(logits.double(), sampling).dtype == torch.float64


def reference(logits: list[float], sampling: Sampling) -> list[float]:
    """Temperature, top-k, top-p of one row, slowly."""
    if sampling.temperature == 0:
        return [float(i == logits.index(max(logits))) for i in range(len(logits))]
    scaled = [x / sampling.temperature for x in logits]
    ordered = sorted(scaled, reverse=True)[: sampling.top_k or None]
    weights = [math.exp(x - ordered[0]) for x in ordered]
    reached, least = 0.0, ordered[0]
    for x, weight in zip(ordered, weights, strict=True):
        if reached / sum(weights) < sampling.top_p:
            least = x
        reached += weight
    kept = [math.exp(x - ordered[0]) if x >= least else 0.0 for x in scaled]
    return [x / sum(kept) for x in kept]


# Logits on a grid, so that ties are frequent; top_p where no sum of their weights comes within rounding of it.
any_row = st.tuples(
    st.lists(st.integers(-12, 12).map(lambda n: n / 4), min_size=6, max_size=6),
    st.builds(
        Sampling,
        temperature=st.sampled_from([0.0, 0.5, 1.0, 2.0]),
        top_k=st.sampled_from([0, 1, 2, 3, 5, 6, 50]),
        top_p=st.sampled_from([1.0, 0.90123, 0.51234, 0.1234567]),
        seed=st.integers(0, 2**63 - 1),
    ),
)


@pytest.mark.thorough
@settings(max_examples=150, derandomize=True)
@given(st.lists(any_row, min_size=1, max_size=6))
def test_any_batch_equals_the_slow_reference(rows):
    logits = torch.tensor([row for row, _ in rows])
    sampling = batch_of(*[sampling for _, sampling in rows])
    untouched = logits.clone()
    probs = to_probs(logits, sampling)
    torch.testing.assert_close(probs, torch.tensor([reference(*row) for row in rows]), atol=1e-6, rtol=1e-5)
    assert torch.equal(logits, untouched)
    positions = torch.arange(len(rows))
    assert torch.equal(choose(logits, sampling, positions), sample(probs, sampling.seeds, positions))


# The match rule's draw


WEIGHTS = {
    "peaked": torch.tensor([0.0005, 0.999, 0.0, 0.0004, 0.0001]),
    "zipf": 1 / torch.arange(1.0, 51),
    "flat": torch.ones(1000),
    # One common token among a thousand that come together once in a hundred times.
    "rare": torch.cat([torch.full((500,), 1e-5), torch.tensor([0.99]), torch.full((500,), 1e-5)]),
}


def drawn(weights: Tensor, seeds: Tensor, positions: Tensor) -> Tensor:
    return sample((weights / weights.sum()).expand(len(seeds), -1), seeds, positions)


ASPECTS = {
    "seeds": lambda n: (n, torch.full_like(n, 17)),
    "seeds of another size": lambda n: (n + (1 << 62), torch.zeros_like(n)),
    "seeds in steps of a power of two": lambda n: (n << 40, torch.ones_like(n)),
    "positions": lambda n: (torch.full_like(n, 5), n),
    "diagonal": lambda n: (n, n),
}


@pytest.mark.thorough
@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize("aspect", ASPECTS)
def test_draws_follow_their_law(kind, aspect):
    tokens = drawn(WEIGHTS[kind], *ASPECTS[aspect](torch.arange(NUM_DRAWS)))
    assert fits(tokens, WEIGHTS[kind]) > REJECT
    if kind == "rare":  # a thousand cells too small for the test above, together
        assert fits((tokens == 500).long(), torch.tensor([0.01, 0.99])) > REJECT


DICE = torch.tensor([0.3, 0.2, 0.2, 0.15, 0.1, 0.05])

STEPS = (1, 2, 1 << 31, 1 << 32, 1 << 62)
KEYS: dict[str, Callable[[Tensor], tuple[Any, Any]]] = {
    "next position": lambda n: ((123, 2 * n), (123, 2 * n + 1)),
    "position 2 further": lambda n: ((123, n), (123, n + 2)),
    "position 64 further": lambda n: ((123, n), (123, n + 64)),
    "positions 40 and 41 of many seeds": lambda n: ((3 + n, 40), (3 + n, 41)),
    "positions 40 and 41 of large seeds": lambda n: (((1 << 63) - 100_000 + n, 40), ((1 << 63) - 100_000 + n, 41)),
    **{f"seed {step} further": lambda n, step=step: ((9, n), (9 + step, n)) for step in STEPS},  # type: ignore[misc]
    "next seed, text shifted": lambda n: ((4, n), (5, n + 2)),
    "next seed, text shifted back": lambda n: ((4, n), (5, n)),
}


@pytest.mark.parametrize("keys", KEYS)
def test_draws_of_other_seeds_or_positions_are_independent(keys):
    numbers = torch.arange(NUM_DRAWS)
    left, right = (drawn(DICE, *torch.broadcast_tensors(*map(torch.as_tensor, key))) for key in KEYS[keys](numbers))
    assert independent(left, right, 6) > REJECT


def random_rows(batch: int, vocab: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(batch + vocab)
    probs = torch.randn(batch, vocab, generator=generator).mul(2).softmax(-1)
    seeds = torch.randint(0, 1 << 62, (batch,), generator=generator)
    return probs, seeds, torch.randint(0, 1000, (batch,), generator=generator)


@pytest.mark.parametrize("vocab", [3, 17, 1000, 4096])
def test_a_draw_does_not_depend_on_its_batch(vocab):
    probs, seeds, positions = random_rows(150, vocab)  # at 4,096 more than is done at once
    tokens = sample(probs, seeds, positions)
    alone = [int(sample(probs[i : i + 1], seeds[i : i + 1], positions[i : i + 1])) for i in range(len(probs))]
    assert tokens.tolist() == alone
    order = torch.randperm(len(probs), generator=torch.manual_seed(1))
    assert torch.equal(sample(probs[order], seeds[order], positions[order]), tokens[order])


def test_a_draw_does_not_depend_on_padding_of_the_vocabulary():
    probs, seeds, positions = random_rows(500, 300)
    padded = torch.nn.functional.pad(probs, (0, 77))
    assert torch.equal(sample(padded, seeds, positions), sample(probs, seeds, positions))


def test_zero_is_never_drawn_and_one_hot_always():
    weights = torch.tensor([0.0, 1e-30, 0.0, 1.0, 0.0])
    seeds = torch.arange(NUM_DRAWS)
    assert (drawn(weights, seeds, seeds) == 3).all()
    one_hot = torch.eye(11)[torch.arange(5000) % 11]
    for greedy in (False, True):
        tokens = sample(one_hot, torch.arange(5000), torch.arange(5000), greedy=greedy)
        assert torch.equal(tokens, torch.arange(5000) % 11)


def test_the_same_noise_makes_similar_distributions_agree():
    seeds = torch.arange(NUM_DRAWS)
    other = torch.tensor([0.25, 0.25, 0.2, 0.15, 0.1, 0.05])
    together = (drawn(DICE, seeds, seeds) == drawn(other, seeds, seeds)).float().mean()
    assert together > 0.9  # 0.95 for the best coupling, 0.20 for independent draws


def test_a_seed_means_the_same_text_in_every_version():
    seeds = torch.tensor([0, 1, 2, 3, (1 << 63) - 1])
    tokens = sample(torch.full((5, 1000), 0.001), seeds, torch.tensor([0, 0, 1, 100, 1 << 20]))
    assert tokens.tolist() == [60, 232, 784, 705, 674]


def test_an_empty_batch_draws_nothing():
    none = torch.zeros(0, dtype=torch.int64)
    assert sample(torch.zeros(0, 5), none, none).shape == (0,)
    assert choose(torch.zeros(0, 5), batch_of(), none).shape == (0,)


# The ratio rule's noise


def test_uniform_noise_is_uniform_and_broadcasts():
    noise = uniform(torch.arange(200).unsqueeze(1), Role.ACCEPT, 3, 4, torch.arange(200))
    assert noise.shape == (200, 200)
    assert noise.dtype == torch.float64
    assert 0 <= noise.min() < noise.max() < 1
    assert fits((noise * 100).long(), torch.ones(100)) > REJECT
    assert noise[7, 9] == uniform(torch.tensor([7]), Role.ACCEPT, 3, 4, 9)


COUNTERS = {
    "role": lambda n: ((n, Role.DRAFT, 1, 2, 3), (n, Role.ACCEPT, 1, 2, 3)),
    "other role": lambda n: ((n, Role.ACCEPT, 1, 2, 3), (n, Role.FINAL, 1, 2, 3)),
    "epoch": lambda n: ((n, Role.DRAFT, 1, 2, 3), (n, Role.DRAFT, 2, 2, 3)),
    "round": lambda n: ((n, Role.DRAFT, 1, 2, 3), (n, Role.DRAFT, 1, 3, 3)),
    "position": lambda n: ((n, Role.DRAFT, 1, 2, 3), (n, Role.DRAFT, 1, 2, 4)),
    "seed": lambda n: ((n * 2, Role.DRAFT, 1, 2, 3), (n * 2 + 1, Role.DRAFT, 1, 2, 3)),
    "epoch and round swapped": lambda n: ((n, Role.DRAFT, 1, 2, 3), (n, Role.DRAFT, 2, 1, 3)),
}


@pytest.mark.parametrize("counter", COUNTERS)
def test_uniform_noise_of_another_counter_is_independent(counter):
    left, right = ((uniform(*key) * 10).long() for key in COUNTERS[counter](torch.arange(NUM_DRAWS)))
    assert independent(left, right, 10) > REJECT


@pytest.mark.parametrize("role", [Role.DRAFT, Role.ACCEPT, Role.FINAL])
def test_uniform_noise_is_independent_of_the_match_rules(role):
    seeds = torch.arange(NUM_DRAWS)
    left = drawn(DICE, seeds, torch.full_like(seeds, 3))
    assert independent(left, (uniform(seeds, role, 0, 0, 3) * 6).long(), 6) > REJECT


def test_drawing_at_even_noise_gives_the_weights_themselves():
    weights = torch.tensor([0, 3, 0, 0, 5, 2, 0])
    tokens = draw(weights.expand(1000, -1), (torch.arange(1000) + 0.5) / 1000)
    assert torch.bincount(tokens, minlength=7).tolist() == (weights * 100).tolist()


@pytest.mark.parametrize("noise", [0.0, 2.0**-60, 0.5, 1 - 2.0**-24, 1 - 2.0**-53, 1.0])
@pytest.mark.parametrize("vocab", [1, 9, 151_936])
def test_a_weight_of_zero_is_never_drawn(noise, vocab):
    weights = torch.rand(4, vocab, generator=torch.manual_seed(vocab))
    weights[1] = weights[1] * 1e-30
    weights[:, 0] = weights[:, -1] = 0.0
    weights[2] = 0.0
    weights[2, vocab // 2] = weights[:, vocab // 2] = 1e-3
    tokens = draw(weights, torch.full((4,), noise, dtype=torch.float64))
    assert (weights.gather(1, tokens.unsqueeze(1)) > 0).all()


def test_runners_up_are_drawn_with_the_same_noise_and_end_where_rules_leave_none():
    torch.manual_seed(1)
    logits, positions = torch.randn(4, 6), torch.tensor([3, 3, 8, 9])
    logits[3, 2:] = -math.inf
    batch = batch_of(Sampling(seed=5), Sampling(0.0), Sampling(0.5, top_k=2, seed=6), Sampling(seed=7))
    first, scores = choose_scored(logits, logits.softmax(-1), batch, positions)
    assert torch.equal(first, choose(logits, batch, positions))
    found = runners_up(logits, first, scores, 3)
    known = first[:, None]
    for place in range(3):
        left = logits.scatter(1, known.clamp(min=0), -math.inf)
        plain = batch_of(*(Sampling(each.temperature, seed=each.seed) for each in batch.rows))
        has_one = ~left.isneginf().all(1)
        expected = torch.where(has_one, choose(left.nan_to_num(neginf=-1e9), plain, positions), -1)
        assert found[:, place].tolist() == expected.tolist()
        known = torch.cat((known, expected[:, None]), 1)
    assert found[3].tolist()[1:] == [-1, -1]
