"""Rounds on a real, microscopic model: the target's text whatever is drafted, and bad proposals by name."""

import dataclasses
import math
import random
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from msgspec.structs import replace

from draft_node.core.generation import Generation
from goodspeed.drafting.drafter import Drafter
from goodspeed.drafting.proposing import Propose
from goodspeed.errors import NOT_NUMBERS
from goodspeed.exact import proposals
from goodspeed.wire.generation import Constraint
from goodspeed.wire.messages import Ack, Draft, Sampling
from tests.fakes import make_entry, make_open, session_id
from tests.micro import VOCAB, make_checkpoint, make_engine
from tests.verify_node.model.desk import RULES, TARGET, RealDesk, alone, make_target, openings, other, outcomes_of
from verify_node.model.match_rule import decide_match_round
from verify_node.model.target import Target
from verify_node.scheduler.round import Round


def test_a_gpus_own_marks_tell_how_long_a_pass_took(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of a round that samples nothing, and so waits for nothing."""
    begin, end = Mock(), Mock()
    begin.elapsed_time.side_effect = lambda other: 2500.0 if other.synchronize.called else pytest.fail("not over yet")
    monkeypatch.setattr("verify_node.model.target.mark", Mock(side_effect=[begin, end]))
    result = make_target().run(Round(1, (make_entry(1, 0, (1, 2, 3), samples=False),)))
    assert not result.outcomes
    assert result.verify_s == 0.0
    begin.elapsed_time.assert_called_once_with(end)
    begin.synchronize.assert_not_called()


def some_draft(rng, session, text):
    """A draft that follows the right text for a while."""
    done = len(session.tokens) - len(session.opened.prompt)
    right = text[done : done + rng.randint(0, session.drafts.may_draft)]
    tokens = tuple(token if rng.random() < 0.8 else rng.randrange(VOCAB) for token in right)
    return Draft(session.session_id, session.epoch, len(session.tokens), tokens, complete=True)


@pytest.mark.parametrize(
    ("num_pages", "options"), [(256, {}), (20, {}), (256, {"rounds": "barrier", "policy": "fixed"})], ids=str
)
@pytest.mark.parametrize("seed", [0, 2])
def test_every_text_is_the_targets_own_in_any_mix(seed, num_pages, options):
    """Drafts right and wrong, chunks of prompts, sessions that come and go, and memory taken away."""
    rng = random.Random(seed)
    desk = RealDesk(make_target(num_pages=num_pages), budget=12, max_round_tokens=24, **options)
    desk.hello("a")
    waiting = [replace(one, max_draft=rng.choice([0, 3, 64])) for one in openings(rng, 8, [1, 5, 40], 1, 30)]
    texts = {message.session_id: alone(message) for message in waiting}
    preempted = 0
    for _ in range(600):
        if waiting and rng.random() < 0.3:
            desk.up("a", waiting.pop())
        if rng.random() < 0.05:
            reopen(desk, rng)
        planned = desk.core.plan(desk.now)
        preempted += len(planned.preempted) if planned else 0
        if planned:
            desk.finish(planned)
        for session in desk.going_on():
            if session.drafts.may_draft and rng.random() < 0.8:
                assert desk.up("a", some_draft(rng, session, texts[session.session_id])) == []
            elif session.drafts.may_draft == 0:
                desk.up("a", Ack(session.session_id, session.epoch, len(session.tokens)))
        if not waiting and not desk.going_on():
            break
    assert desk.texts() == texts
    assert preempted or num_pages > 20


def reopen(desk, rng):
    """One of the sessions is lost, and opened again with what its draft node has of it."""
    if sessions := desk.going_on():
        session = rng.choice(sessions)
        written = desk.texts()[session.session_id]
        committed = written[: rng.randint(0, len(written))]
        assert desk.up("a", replace(session.opened, epoch=session.epoch + 1, committed=committed)) == []


def entry(number, tokens, num_drafted=0, *, samples=True, **changes):
    return make_entry(number, 0, tokens, num_drafted, samples=samples, **changes)


def test_one_round_by_hand():
    """A right draft, a wrong one, an empty one and a chunk of a prompt, in one forward pass."""
    right = [alone(make_open(number, prompt=(1, 2, 3), max_tokens=5)) for number in range(3)]
    wrong = (right[1][0], other(right[1][1]), right[1][2])
    first, second = entry(0, (1, 2, 3, *right[0][:3]), 3), entry(1, (1, 2, 3, *wrong), 3)
    chunk = entry(9, range(10), samples=False)
    result = make_target().run(Round(1, (first, chunk, second, entry(2, (1, 2, 3)))))
    outcomes = {outcome.session_id: outcome for outcome in result.outcomes}
    assert [outcomes[session_id(number)].tokens for number in range(3)] == [right[0][:4], right[1][:2], right[2][:1]]
    assert [outcomes[session_id(number)].num_accepted for number in range(3)] == [3, 1, 0]
    assert outcomes[session_id(0)].agreement == 3
    assert session_id(9) not in outcomes
    assert all(outcome.decisions is None for outcome in result.outcomes)
    assert result.verify_s > 0


def test_a_recording_target_tells_what_agreed_after_a_disagreement_too():
    """After another token the target draws something else; what it would draw there is drafted."""
    right = alone(make_open(1, prompt=(1, 2, 3), max_tokens=6))
    wrong = other(right[0])
    after = alone(make_open(1, prompt=(1, 2, 3, wrong), max_tokens=1))[0]  # the noise is that of the position
    drafted, plain = entry(1, (1, 2, 3, wrong, after, other(after)), 3), entry(2, (1, 2, 3))
    outcomes = outcomes_of(drafted, plain, target=make_target(records=True))
    assert [outcome.decisions.agreed for outcome in outcomes] == [(False, True, False), ()]
    assert outcomes[0].tokens == right[:1]


# -- ratio -------------------------------------------------------------------------------------------------------------


def draft(numbers, prompt, length, *, kind="lattice", k=32):
    """Returns what the target itself would draft for sessions of these numbers."""
    drafter = Drafter(TARGET, make_engine(TARGET), kind=kind, k=k)
    for number in numbers:
        request = Generation(session_id(number), prompt, Sampling(seed=number), 100, verification="ratio")
        drafter.add(Propose(request, 1, 1, prompt, length))
    done = []
    while drafter.busy:
        done += drafter.step()
    return done


BAD = {
    "nothing": (lambda good: None, "ends after 0 of 3"),
    "cut short": (lambda good: good[: len(good) // 2], "proposal"),
    "too much": (lambda good: good + b"x", "bytes"),
    "noise": (lambda good: bytes(range(len(good) % 256)), "proposal"),
    "not what was drafted": (lambda good: good[: len(good) // 3] * 3, "probability zero"),
}


@pytest.mark.parametrize(("spoil", "named"), BAD.values(), ids=BAD)
def test_an_invalid_proposal_costs_its_session_the_draft_and_nobody_else_anything(spoil, named):
    drafts = draft(range(3), (1, 2, 3), 3)
    bad = next(number for number, proposed in enumerate(drafts) if len(set(proposed.tokens)) == 3)

    def outcomes(sent):
        entries = [ratio_entry(number, one.tokens, sent[number]) for number, one in enumerate(drafts)]
        return {outcome.session_id: outcome for outcome in outcomes_of(*entries, entry(7, (4, 5)))}

    good = [proposed.proposal for proposed in drafts]
    if named == "probability zero":  # one token wide, so that no other can have been drafted
        good[bad] = b"".join(narrow(token) for token in drafts[bad].tokens)
    honest, spoilt = outcomes(good), outcomes([*good[:bad], spoil(good[bad]), *good[bad + 1 :]])
    outcome = spoilt.pop(session_id(bad))
    honest.pop(session_id(bad))
    assert named in outcome.invalid
    assert (len(outcome.tokens), outcome.num_accepted, outcome.agreement) == (1, 0, 0.0)
    assert {key: value.tokens for key, value in spoilt.items()} == {key: value.tokens for key, value in honest.items()}
    assert not any(value.invalid for value in spoilt.values())


def test_what_is_observed_depends_on_the_claim_and_not_on_the_tokens():
    """A flat claim over all tokens tells how flat the target is, also where the likeliest is always sent."""
    flat = proposals.make(torch.full((1, VOCAB), 1 / VOCAB), "lattice", k=VOCAB).pack()[0]
    [claimed] = outcomes_of(ratio_entry(0, (), flat))
    assert claimed.agreement == 0
    with torch.inference_mode():
        p = make_checkpoint(1).model(torch.tensor([[1, 2, 3]])).logits[0, -1].softmax(-1)
    outcomes = outcomes_of(*(ratio_entry(token, (token,), flat) for token in range(VOCAB)))
    wanted = float(torch.minimum(p, torch.tensor(1 / VOCAB)).sum())
    assert [one.agreement for one in outcomes] == pytest.approx([wanted] * VOCAB, abs=1e-5)
    [likeliest] = [one for one in outcomes if one.session_id == session_id(int(p.argmax()))]
    assert likeliest.num_accepted == 1  # it is accepted, and is evidence for that very reason
    assert likeliest.evidence[:-1] == pytest.approx([0.0] * 4, abs=1e-4)
    assert likeliest.evidence[-1] == pytest.approx(math.log((1 + 1 / wanted) / 2), abs=1e-4)


@pytest.mark.parametrize("noise_by", ["round", "epoch"])
def test_rounds_that_are_chosen_for_their_noise_change_nothing_that_is_observed(noise_by):
    """A draft node knows the seed, and so what accepts; it may wait for a round that accepts everything.

    A verify node that comes back counts its rounds anew, so the noise must depend on the epoch, too.
    """
    [proposed] = draft([1], (5, 6, 7), 4)
    target, outcomes = make_target(), []
    for each in range(30):
        number, epoch = (each, 1) if noise_by == "round" else (1, each)
        drafted = ratio_entry(1, proposed.tokens, proposed.proposal, epoch=epoch)
        outcomes += outcomes_of(drafted, target=target, number=number)
        target.engine.pool.free(session_id(1))
    assert len({one.num_accepted for one in outcomes}) > 1
    assert len({round(one.agreement, 6) for one in outcomes}) == 1
    assert len({one.evidence for one in outcomes}) == 1


def ratio_entry(number, tokens, positions, *, prompt=(1, 2, 3), **changes):
    """A draft after a prompt; `positions` is what is claimed."""
    proposal = positions if tokens else None
    return entry(number, (*prompt, *tokens), len(tokens), verification="ratio", proposal=proposal, **changes)


def narrow(token):
    """A position of a proposal in which only this token can be drawn."""
    probs = torch.zeros(1, VOCAB)
    probs[0, token] = 1.0
    return proposals.make(probs, "lattice", k=1).pack()[0]


@pytest.mark.parametrize("kind", proposals.KINDS)
def test_what_the_target_itself_drafted_is_accepted_whole(kind):
    """Rounded to 16 bits the distributions are the same but for their last bits; so nearly always."""
    drafts = draft(range(40), (1, 2, 3), 3, kind=kind, k=VOCAB)
    outcomes = outcomes_of(*(ratio_entry(number, one.tokens, one.proposal) for number, one in enumerate(drafts)))
    assert sum(outcome.num_accepted for outcome in outcomes) >= 118
    assert all(outcome.agreement == pytest.approx(3, abs=0.01) for outcome in outcomes)


def test_a_recording_target_tells_ratios_and_decisions_and_decides_the_same():
    """Half of each draft is another session's, so that some of it is rejected."""
    drafts = [*draft(range(20), (1, 2, 3), 4)[:10], *draft(range(20), (1, 2), 4)[10:]]
    entries = [ratio_entry(number, one.tokens, one.proposal, prompt=(5, 6, 7)) for number, one in enumerate(drafts)]
    entries += [ratio_entry(30, (), None)]
    plain, recorded = (outcomes_of(*entries, target=make_target(records=records)) for records in (False, True))
    assert [outcome.tokens for outcome in plain] == [outcome.tokens for outcome in recorded]
    assert any(outcome.num_accepted < 4 for outcome in recorded[:20])
    for outcome in recorded[:20]:
        agreed, ratios = outcome.decisions.agreed, outcome.decisions.ratios
        assert len(agreed) == len(ratios) == 4
        assert outcome.num_accepted == (agreed.index(False) if False in agreed else 4)
        assert all(0 <= ratio <= 1 and (passed or ratio < 1) for passed, ratio in zip(agreed, ratios, strict=True))
    assert recorded[20].decisions.agreed == ()


# -- rules for logits --------------------------------------------------------------------------------------------------


def test_logprobs_are_of_the_models_own_logits():
    [told] = outcomes_of(entry(1, (1, 2, 3), logit_rules=RULES[3], text=(1, 2, 3), num_logprobs=5))
    [plain] = outcomes_of(entry(1, (1, 2, 3), num_logprobs=5))
    assert told.logprobs[0].top_logprobs == plain.logprobs[0].top_logprobs


def test_rows_that_a_form_leaves_nothing_fail_only_where_they_are_reached():
    """A row after a rejected token decides nothing."""
    target = make_target()
    right = alone(make_open(1, prompt=(1, 2, 3), max_tokens=2))
    wrong = other(right[0])
    for drafted, failed in ((wrong, ""), (right[0], "its rules leave no token to draw")):
        planned = Round(1, (entry(1, (1, 2, 3, drafted), 1),))
        logits = target.forward(planned)
        target.engine.pool.free(session_id(1))
        words = np.array([[-1, -1], [0, 0]], np.int32)
        with torch.inference_mode():
            [outcome] = decide_match_round(target._verified(planned, {session_id(1): words}), logits, VOCAB)
        assert outcome.failed == failed


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_logit_that_is_not_a_number_fails_its_session_alone(wrong, temperature, dtype):
    sampling = Sampling(temperature=temperature, seed=3)
    target, planned = make_target(), Round(1, tuple(entry(n, (1, 2, 3), sampling=sampling) for n in (1, 2)))
    logits = target.forward(planned).to(dtype)
    with torch.inference_mode():
        logits[0, 5] = wrong
        broken, whole = target.verify(planned, logits)
    assert (broken.failed, whole.failed) == (NOT_NUMBERS, "")


@pytest.mark.parametrize("verification", ["match", "ratio"])
@pytest.mark.parametrize(("dtype", "failed"), [(torch.float16, ""), (torch.float32, NOT_NUMBERS)])
def test_logits_that_overflow_after_a_rejected_token_fail_only_where_the_cache_may(verification, dtype, failed):
    """In float16, overflows are common and never stored; elsewhere, they remain behind the verified text."""
    checkpoint = dataclasses.replace(make_checkpoint(1), dtype=dtype)
    model: Any = checkpoint.model.to(dtype)
    target = Target(checkpoint, make_engine(checkpoint))
    likeliest = {"sampling": Sampling(temperature=0.0), "verification": verification}
    [right] = outcomes_of(entry(1, (1, 2, 3), **likeliest), target=target)[0].tokens
    wrong = other(right)
    with torch.no_grad():
        model.get_input_embeddings().weight[wrong] = math.inf
    proposal = narrow(wrong) * 3 if verification == "ratio" else None
    drafted = entry(2, (1, 2, 3, wrong, wrong, wrong), 3, proposal=proposal, **likeliest)
    [outcome] = outcomes_of(drafted, target=target, number=2)
    assert (outcome.failed, outcome.tokens) == (failed, () if failed else (right,))
    if not failed:
        target.engine.pool.truncate(session_id(2), 3)
        rest = replace(entry(2, (right,), **likeliest), start=3), entry(3, (1, 2, 3, right), **likeliest)
        continued, whole = outcomes_of(*rest, target=target, number=3)
        assert continued.tokens == whole.tokens != ()


def test_a_page_of_a_text_that_is_not_numbers_serves_the_next_one():
    checkpoint = make_checkpoint(1)
    target = Target(checkpoint, make_engine(checkpoint, num_pages=2))

    def outcomes(number, *tokens):
        found = outcomes_of(entry(1, tokens), entry(2, tokens), target=target, number=number)
        for each in (1, 2):
            target.engine.pool.free(session_id(each))
        return found

    expected = outcomes(1, 1, 2, 3)
    model: Any = checkpoint.model
    weights = model.get_input_embeddings().weight
    with torch.no_grad():
        kept, weights[9] = weights[9].clone(), math.nan
    assert [outcome.failed for outcome in outcomes(2, 9, 9, 9, 9)] == [NOT_NUMBERS] * 2
    with torch.no_grad():
        weights[9] = kept
    assert outcomes(1, 1, 2, 3) == expected


def test_overwritten_pages_leave_the_prefix_cache():
    target, text = make_target(prefix_cache=True), (1, 2, 3, 4, 5)
    outcomes_of(entry(1, text), target=target)
    pool = target.engine.pool
    pool.publish(session_id(1), b"scope", text)
    assert pool.find(session_id(2), b"scope", text).pages
    target.engine.clear([session_id(1)])
    assert not pool.find(session_id(2), b"scope", text).pages


def test_masks_are_made_before_a_round_ends_that_failed(monkeypatch):
    """The next one must not meet their matchers in use."""
    target, beside = make_target(), Mock()
    monkeypatch.setattr(target, "_beside", beside)
    monkeypatch.setattr(target, "forward", Mock(side_effect=RuntimeError("the device is gone")))
    monkeypatch.setattr(target._constraint_masks, "prepare", lambda planned: None)
    with pytest.raises(RuntimeError, match="the device is gone"):
        target.run(Round(1, (entry(1, (1, 2, 3), constraint=Constraint("json_object")),)))
    beside.submit.return_value.result.assert_called_once_with()
