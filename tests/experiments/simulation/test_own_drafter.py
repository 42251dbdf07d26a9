"""A draft model on the verify node's GPU, and drafts made in one pass: seconds and tokens by hand."""

from dataclasses import replace

import pytest

from draft_node.core.generation import Generation
from experiments.simulation.nodes.own_drafter import best_length, drafting_s, priced
from experiments.simulation.settings import Settings
from experiments.simulation.texts.acceptance import Independent
from experiments.simulation.texts.draft_model import DraftModel
from experiments.simulation.texts.text import alone
from goodspeed.drafting.proposing import Propose
from goodspeed.drafting.tree import Nodes
from goodspeed.fair.round_time import Linear
from goodspeed.ngram.drafting import Continuation
from goodspeed.wire.messages import Sampling
from tests.fakes import make_entry
from verify_node.scheduler.round import Round

MS = 1e-3
PASS = Linear(fixed_s=MS, token_s=0.1 * MS, context_s=0.01 * MS)
OWN = Settings(round_cost=Linear(fixed_s=10 * MS), own_draft_cost=PASS)


def entry(num_drafted, start=10, source="model", parents=None):
    tokens = (1,) * (1 + num_drafted)
    return make_entry(1, start, tokens, num_drafted, source=source, parents=parents)


DRAFTED = Round(1, (entry(2), entry(1, start=20), entry(3, source="ngram"), entry(0)))


def test_a_pass_drafts_for_all_sessions_that_draft_so_far():
    """First both sessions with two rows each and 30 cached tokens, then one with one row and 10."""
    assert drafting_s(OWN, DRAFTED) == pytest.approx((1 + 0.4 + 0.3 + 1 + 0.1 + 0.1) * MS)


def test_the_price_of_even_drafts():
    """Four sessions, six drafted tokens: all draft one, two of them another."""
    cost = priced(OWN)
    assert cost.round_s(4, 4, 100) == pytest.approx(10 * MS)
    assert cost.round_s(10, 4, 100) == pytest.approx((10 + 1 + 0.4 + 1 + 1 + 0.2 + 0.5) * MS)
    assert priced(Settings(round_cost=OWN.round_cost)) is OWN.round_cost


def test_the_best_length_by_hand():
    """A pass of 1 ms beside a round of 10: with acceptance 0.5 it pays for 1 + 0.5 and 1.75 tokens, not for 1.875."""
    cheap = replace(OWN, own_draft_cost=Linear(fixed_s=MS))
    assert [best_length(cheap, [0.5], 1, 0, most) for most in (1, 2, 8)] == [1, 2, 2]
    dear = replace(OWN, own_draft_cost=Linear(fixed_s=20 * MS))
    assert best_length(dear, [0.5], 1, 0, 8) == 0
    assert best_length(dear, [0.5, 1.0], 1, 0, 8) == 0


def wanted(length, num_drafted=0):
    request = Generation(b"session", (1, 2, 3), Sampling(seed=5), max_tokens=8)
    drafted = Nodes.of(Continuation(alone(request)[:num_drafted], (0.9,) * num_drafted))
    return Propose(request, 1, 1, request.prompt, length, tree=drafted)


def test_in_parallel_all_tokens_take_one_pass_and_claim_less():
    acceptances = {b"session": Independent(0.8)}
    cost = Linear(fixed_s=5 * MS, token_s=MS)
    one_by_one, seconds = DraftModel(acceptances, cost).answer(wanted(3), 1, failed=False)
    assert seconds == pytest.approx((5 + 3 + 2 * (5 + 1)) * MS)
    assert one_by_one.probabilities == pytest.approx((0.8, 0.8, 0.8))
    at_once, seconds = DraftModel(acceptances, cost, 0.5).answer(wanted(3), 1, failed=False)
    assert seconds == pytest.approx((5 + 3 + 2) * MS)
    assert at_once.probabilities == pytest.approx((0.8, 0.4, 0.2))
    _, seconds = DraftModel(acceptances, cost, 0.5).answer(wanted(3, num_drafted=4), 1, failed=False)
    assert seconds == pytest.approx((5 + 4 + 2) * MS)
