"""Proposals made ahead of a verdict: the same tokens, in nobody's way, and nothing of them lost or kept wrongly."""

import random

import pytest
from msgspec.structs import replace

from draft_node.core.actions import Propose
from goodspeed.exact import proposals
from tests.draft_node.model.test_drafter import (
    SAMPLINGS,
    fresh,
    make_drafter,
    make_request,
    record_passes,
    run,
    verdict,
    wanted,
)
from tests.micro import VOCAB


def ahead(request, tokens, length, round=2):
    """Asks for one guess and `length` tokens after it."""
    return Propose(request, 1, round, tuple(tokens), length + 1, ahead=True)


def test_it_is_a_guess_and_what_follows_it():
    request = make_request()
    alone = fresh(wanted(request, request.prompt, 7))
    drafter = make_drafter()
    run(drafter, wanted(request, request.prompt, 3))
    [proposed] = run(drafter, ahead(request, (*request.prompt, *alone[:3]), 3))
    assert (proposed.round, proposed.guess, proposed.tokens) == (2, alone[3], alone[4:])


def test_a_guess_that_ends_the_text_is_followed_by_nothing():
    request = make_request()
    alone = fresh(wanted(request, request.prompt, 1))
    [proposed] = run(make_drafter(), ahead(replace(request, stop_ids=alone), request.prompt, 3))
    assert (proposed.guess, proposed.tokens) == (alone[0], ())


def test_those_with_nothing_in_flight_come_first():
    drafter = make_drafter()
    early, late = make_request(1), make_request(2)
    drafter.add(ahead(early, early.prompt, 1))
    drafter.add(wanted(late, late.prompt, 3))
    finished = [proposed.session_id for _ in range(5) for proposed in drafter.step()]
    assert finished == [late.session_id, early.session_id]


@pytest.mark.parametrize("num_steps", range(1, 6))
@pytest.mark.parametrize("verification", ["match", "ratio"])
def test_a_verdict_in_the_middle_takes_over_what_is_drafted(monkeypatch, verification, num_steps):
    request = make_request(verification=verification)
    drafter = make_drafter()
    steps = record_passes(drafter, monkeypatch)
    drafter.add(ahead(request, request.prompt, 6))
    for _ in range(num_steps):
        drafter.step()
    guess, *drafted = drafter._jobs[request.session_id].drafted
    [proposed] = run(drafter, wanted(request, (*request.prompt, guess), 4, round=3))
    assert (proposed.round, proposed.guess, len(proposed.tokens)) == (3, None, 4)
    assert list(proposed.tokens[: min(3, len(drafted))]) == drafted[:3]
    assert len(steps) == max(5, num_steps + 1)  # the guess and four more, and at least one after the verdict
    _check_taken_over(request, guess, proposed)
    # What was taken over is not verified for that: a verdict may still decide otherwise.
    again = wanted(request, (*request.prompt, guess, (proposed.tokens[0] + 1) % VOCAB, 8, 8, 8), 2, round=4)
    assert run(drafter, again)[0].tokens == fresh(again)


def _check_taken_over(request, guess, proposed):
    if request.verification == "match":
        assert proposed.tokens == fresh(wanted(request, (*request.prompt, guess), 4))
    else:  # each token with its own distribution: one of probability zero would be refused
        sent = proposals.decode(proposed.proposal, 4, VOCAB, proposed.tokens)
        for position, probs in enumerate(sent):
            base = (*request.prompt, guess, *proposed.tokens[:position])
            [alone] = run(make_drafter(), wanted(request, base, 1, round=9))
            assert probs.tolist() == pytest.approx(proposals.decode(alone.proposal, 1, VOCAB)[0].tolist(), abs=1e-4)


@pytest.mark.parametrize("num_right", range(5))
@pytest.mark.parametrize("verification", ["match", "ratio"])
def test_what_was_assumed_wrongly_leaves_no_trace(verification, num_right):
    """What is drafted and what was assumed is in the cache; the text goes on otherwise, for more than one token."""
    request = make_request(verification=verification)
    drafter = make_drafter()
    [proposed] = run(drafter, wanted(request, request.prompt, 4))
    drafter.add(ahead(request, (*request.prompt, *proposed.tokens), 4))
    for _ in range(3):
        drafter.step()
    assumed = (*proposed.tokens, drafter._jobs[request.session_id].drafted[0])
    base = (*request.prompt, *assumed[:num_right], (assumed[num_right] + 1) % VOCAB, 8, 8, 8, 8)
    again = wanted(request, base, 3, round=3)
    assert run(drafter, again)[0].tokens == fresh(again)


def test_under_ratio_the_guess_distribution_stays_here():
    request = make_request(verification="ratio")
    [proposed] = run(make_drafter(), ahead(request, request.prompt, 3))
    assert proposed.guess is not None
    assert proposals.decode(proposed.proposal, 3, VOCAB, proposed.tokens).shape == (3, VOCAB)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_after_any_verdicts_it_proposes_what_a_fresh_one_would(sampling):
    """Some come while it drafts ahead, some after; what was assumed is in the cache, and must not count as final."""
    rng = random.Random(7)
    request = make_request(sampling=sampling)
    drafter, base = make_drafter(), list(request.prompt)
    for number in range(8):
        propose = wanted(request, base, rng.choice([1, 3, 6]), number)
        [proposed] = run(drafter, propose)
        assert proposed.tokens == fresh(propose)
        drafter.add(ahead(request, (*base, *proposed.tokens), 3, number))
        for _ in range(rng.randint(0, 6)):
            for guessed in drafter.step():
                alone = fresh(wanted(request, (*base, *proposed.tokens), 4))
                assert (guessed.guess, *guessed.tokens) == alone
        bonus = fresh(wanted(request, (*base, *proposed.tokens), 1))
        base = [*base, *proposed.tokens, *bonus] if rng.random() < 0.5 else verdict(rng, base, proposed.tokens)


def test_it_takes_nobodys_memory_and_gives_way():
    drafter = make_drafter(num_pages=4)
    first, second = make_request(1), make_request(2)
    run(drafter, wanted(first, first.prompt, 3))  # idle now, with two of the four pages of four tokens
    [proposed] = run(drafter, ahead(second, (1,) * 12, 3))
    assert (proposed.guess, proposed.tokens) == (None, ())
    assert first.session_id in drafter.runner.pool
    drafter.add(ahead(second, second.prompt, 3))
    drafter.step()
    [urgent] = run(drafter, wanted(first, (*first.prompt, *(4,) * 6), 3))
    assert urgent.tokens == fresh(wanted(first, (*first.prompt, *(4,) * 6), 3))


def test_when_the_model_fails_the_one_made_ahead_is_empty_too():
    drafter = make_drafter()
    request = make_request()
    drafter.add(ahead(request, request.prompt, 5))
    drafter.step()
    [given_up] = drafter.abandon()
    assert (given_up.guess, given_up.tokens, given_up.proposal) == (None, (), None)


def unasked(request, tokens, length, num_unverified=0, round=2):
    """Asks for more of what is drafted while the session goes on."""
    return Propose(request, 1, round, tuple(tokens), length, unasked=True, num_unverified=num_unverified)


def test_a_text_that_leaves_what_was_drafted_unasked_is_drafted_for_as_if_nothing_had_been():
    """Three tokens from its end: the cache must not take what no verdict has decided for final."""
    request = make_request()
    drafter = make_drafter()
    [first] = run(drafter, unasked(request, request.prompt, 4))
    run(drafter, unasked(request, (*request.prompt, *first.tokens), 2, num_unverified=4, round=3))
    other = tuple((token + 1) % VOCAB for token in first.tokens[:3])
    again = unasked(request, (*request.prompt, *other), 3, round=4)
    assert run(drafter, again)[0].tokens == fresh(wanted(request, (*request.prompt, *other), 3))


def test_what_is_awaited_comes_before_what_was_not_asked_for_and_that_is_not_before_drafts_ahead():
    drafter = make_drafter()
    chain, early, late = make_request(1), make_request(2), make_request(3)
    drafter.add(unasked(chain, chain.prompt, 1))
    drafter.add(ahead(early, early.prompt, 0))
    drafter.add(wanted(late, late.prompt, 2))
    finished = [proposed.session_id for _ in range(4) for proposed in drafter.step()]
    assert finished[0] == late.session_id
    assert set(finished[1:]) == {chain.session_id, early.session_id}
