"""The test of what is claimed to have been drawn from: means of 1 by exact sums, false alarms, and liars found."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from goodspeed.exact import proposals
from goodspeed.exact.proposals import decode
from goodspeed.exact.rejection import overlaps, ratios
from verify_node.clients.suspicion import Suspicion
from verify_node.model.evidence import TILTS, log_gains, log_tilts

LENGTH = 5  # of a draft
ENCODINGS = {"dense-fp32": {}, "dense-fp16": {}, "lattice": {"k": 16}}


def models(seed: int, rows: int, vocab: int, spread: float = 2.0, shift: float = 1.0) -> tuple[Tensor, Tensor]:
    """Target and draft probabilities that differ as models of a family do [rows, vocab]."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, vocab, generator=generator) * spread
    moved = logits + torch.randn(rows, vocab, generator=generator) * shift
    return logits.softmax(-1), moved.softmax(-1)


def evidence(target: Tensor, claimed: Tensor, tokens: Tensor, length: int = LENGTH) -> list[tuple[float, ...]]:
    """Logarithms of all bets on drafts of so many tokens each; target, claimed [rows, vocab], tokens [rows]."""
    shape = (-1, length, target.shape[-1])
    target, claimed, tokens = target.view(shape), claimed.view(shape), tokens.view(-1, length)
    drafted = torch.full((len(tokens),), length)
    gains = log_gains(ratios(target, tokens, claimed, drafted), overlaps(target, claimed, drafted))
    tilts = [log_tilts(q, tuple(row)) for q, row in zip(claimed, tokens.tolist(), strict=True)]
    return [(*tilt.tolist(), gain) for tilt, gain in zip(tilts, gains.tolist(), strict=True)]


CLAIMS = {
    "any": [0.5, 0.3, 0.15, 0.05],
    "flat": [0.25, 0.25, 0.25, 0.25],
    "one": [0.0, 1.0, 0.0, 0.0],
    "two": [0.0, 0.5, 0.5, 0.0],
    "rare": [1 - 3e-6, 1e-6, 1e-6, 1e-6],
}
TARGETS = [[0.1, 0.2, 0.3, 0.4], [0.25] * 4, [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]]


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_every_bet_has_mean_1_where_tokens_are_drawn_from_what_is_claimed(claim, target):
    q, p = torch.tensor([claim]), torch.tensor([target])
    means = np.zeros(len(TILTS) + 1)
    for token in range(4):
        if claim[token]:
            means += float(q[0, token]) * np.exp(evidence(p, q, torch.tensor([token]), 1)[0])
    assert (means <= 1 + 1e-6).all()
    assert means == pytest.approx(1.0, abs=2e-5)  # a little is given away to rounding


def test_the_stake_is_a_martingale():
    """Over all texts of three tokens: its mean stays 1, whatever bets are made when."""
    q = np.array([0.5, 0.3, 0.2])
    first, second = np.log([0.5, 1.0, 2.25]).tolist(), np.log([1.8, 0.2, 0.2]).tolist()  # of mean 1 under q
    mean = 0.0
    for tokens in np.ndindex(3, 3, 3):
        suspicion = Suspicion()
        for token in tokens:
            suspicion.observe((first[token], second[token]))
        mean += q[list(tokens)].prod() * suspicion.stake
    assert mean == pytest.approx(1.0)


def test_a_stake_is_won_or_lost_and_what_is_proven_stays():
    suspicion = Suspicion()
    assert suspicion.stake == 1.0
    assert not suspicion.observe(())  # nothing was drafted, or nothing could be read
    assert suspicion.num_drafts == 0
    found = [suspicion.observe((1.0, -1.0)) for _ in range(40)]
    assert found.count(True) == 1  # told once
    assert suspicion.proven
    assert not suspicion.observe((-500.0, -500.0))
    assert suspicion.proven
    overflow = Suspicion()
    assert overflow.observe((1e9, 1e9))
    assert math.isfinite(overflow.stake)


def test_a_client_that_begins_to_lie_late_is_found_nearly_as_soon():
    """A stake that is lost to years of honesty is not the only one."""
    suspicion = Suspicion()
    for _ in range(100_000):
        suspicion.observe((-1.0, -0.01))
    needed = next(number for number in range(1, 1000) if suspicion.observe((0.5, 0.0)))
    fresh = Suspicion()
    assert next(number for number in range(1, 1000) if fresh.observe((0.5, 0.0))) < needed < 80


def over_the_wire(probs: Tensor, kind: str, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the claims [rows, vocab] and tokens [rows] of rows that are sampled and sent as by a draft node."""
    proposal = proposals.make(probs, kind, **ENCODINGS[kind])
    sent = b"".join(proposal.pack())
    return decode(sent, len(probs), probs.shape[1]), proposal.sample(noise)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ENCODINGS)
@pytest.mark.parametrize("shift", [0.3, 3.0], ids=["good drafts", "bad drafts"])
def test_an_honest_client_is_never_suspected(kind, shift):
    """20,000 tokens of each encoding; the stake never even comes near."""
    suspicion, highest = Suspicion(), 0.0
    generator = torch.Generator().manual_seed(1)
    for chunk in range(10):
        p, q = models(chunk, 2000, 64, shift=shift)
        claimed, tokens = over_the_wire(q, kind, torch.rand(2000, generator=generator))
        for factors in evidence(p, claimed, tokens):
            suspicion.observe(factors)
            highest = max(highest, suspicion.stake)
    assert suspicion.num_drafts * LENGTH == 20_000
    assert not suspicion.proven
    assert highest < 1000  # once in a thousand such clients it would be more


def test_sharp_bets_are_wrong_as_often_as_promised_and_no_more():
    """Many short lives: the share of honest clients whose stake ever reaches 20 is at most a 20th."""
    num_clients, reached = 400, 0
    generator = torch.Generator().manual_seed(2)
    p, q = models(3, num_clients * 20 * LENGTH, 16, shift=1.5)
    claimed, tokens = over_the_wire(q, "dense-fp32", torch.rand(len(q), generator=generator))
    found = iter(evidence(p, claimed, tokens))
    for _ in range(num_clients):
        suspicion = Suspicion()
        reached += any(suspicion.observe(next(found)) or suspicion.stake >= 20 for _ in range(20))
    assert reached <= num_clients / 20


Lie = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""(draft probs [rows, vocab], noise [rows]) -> what is claimed [rows, vocab], what is sent [rows]"""


def drawn(q: Tensor, noise: Tensor) -> Tensor:
    return proposals.make(q, "dense-fp32").sample(noise)


def likeliest_as_if_unlikely(q: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """The likeliest token with 0.01, and the truth about all others."""
    best = q.argmax(-1, keepdim=True)
    rest = q.scatter(-1, best, 0.0)
    return (rest / rest.sum(-1, keepdim=True) * 0.99).scatter(-1, best, 0.01), best.squeeze(-1)


def likeliest_as_if_usual(q: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """The likeliest token, with the probability that makes it look no more or less likely than usual: none tilts."""
    best = q.argmax(-1, keepdim=True)
    flat = torch.full_like(q, 1 / q.shape[-1])
    rest = q.scatter(-1, best, 0.0)
    mixed = 0.9 * flat + 0.1 * rest / rest.sum(-1, keepdim=True)
    mixed = mixed.scatter(-1, best, 1 / q.shape[-1])
    return mixed / mixed.sum(-1, keepdim=True), best.squeeze(-1)


def drawn_at(temperature: float) -> Lie:
    return lambda q, noise: (q, drawn(q.log().div(temperature).softmax(-1), noise))


LIARS: dict[str, tuple[Lie, int]] = {  # within how many drafted tokens it is found
    "likeliest token as if unlikely": (likeliest_as_if_unlikely, 60),
    "likeliest token of a flat claim": (lambda q, noise: (torch.full_like(q, 1 / q.shape[-1]), q.argmax(-1)), 60),
    "likeliest token as if usual": (likeliest_as_if_usual, 60),
    "drawn at 0.5, claimed at 1": (drawn_at(0.5), 200),
    "drawn at 1.5, claimed at 1": (drawn_at(1.5), 400),
    "shifted by one id": (lambda q, noise: (q.roll(1, -1), drawn(q, noise)), 60),
    "of another text": (lambda q, noise: (q.roll(1, 0), drawn(q, noise)), 60),
}


@pytest.mark.parametrize(("lie", "within"), LIARS.values(), ids=LIARS)
@pytest.mark.parametrize("seed", range(3))
def test_a_liar_is_found(lie, within, seed):
    suspicion, generator = Suspicion(), torch.Generator().manual_seed(seed)
    p, q = models(seed, 4000, 64, shift=0.7)
    claimed, tokens = lie(q, torch.rand(4000, generator=generator))
    found = evidence(p[:within], claimed[:within], tokens[:within])
    assert any(suspicion.observe(factors) for factors in found)
