"""Assigned lengths: the index proposes first, and what it does not draft the draft model does, if there is one."""

import pytest
from msgspec.structs import replace

from draft_node.core.actions import Deliver, Propose, Proposed, Request, Send
from draft_node.core.drafts.asking import DRAFTING_TIMEOUT_S
from draft_node.core.session import Session
from draft_node.core.state import State
from goodspeed.exact import proposals
from goodspeed.exact.positions import certain
from goodspeed.ngram.drafting import Continuation
from goodspeed.wire import odds
from goodspeed.wire.messages import Draft, Sampling, Verdict, digest
from tests.draft_node.core.scripted import ScriptedDrafter

ID = b"0123456789abcdef"
PROMPT = (1, 2, 3)
TEXT = (*PROMPT, *range(10, 30))
REQUEST = Request(ID, PROMPT, Sampling(seed=5), max_tokens=100)


def verdict(base_len, tokens, next_length, **changes):
    return replace(Verdict(ID, 1, None, base_len, tuple(tokens), 0, 0, next_length), **changes)


def begin(request=REQUEST, capabilities=("odds", "offers"), text=TEXT, chance=0.9, **options):
    drafter = ScriptedDrafter(request, text=text, odds=chance)
    session = Session(request, ngrams=drafter, **options)
    return session, session.connect(0.0, capabilities=capabilities)


def asked_for(session, length):
    """What the session does about an assigned length at position 4."""
    [delivered, *actions] = session.receive(verdict(3, [10], length), 1.0)
    assert delivered == Deliver((10,))
    return actions


def test_expected_tokens_by_hand():
    assert Continuation((1, 2, 3), (0.5, 0.5, 1.0)).num_expected == 1.0
    assert Continuation().num_expected == 0.0


def test_tokens_that_are_worth_it_go_up_at_once():
    session, _ = begin()
    draft = Draft(ID, 1, 1, 4, digest(TEXT[:4]), TEXT[4:6], odds=odds.encode([0.9, 0.9]), num_ngram=2)
    assert asked_for(session, 2) == [Send(draft)]
    assert session.state is State.WAITING


@pytest.mark.parametrize(("chance", "text"), [(0.5, TEXT[:5]), (0.9, ())])
def test_else_the_draft_model_drafts_alone(chance, text):
    session, _ = begin(chance=chance, text=text)
    assert asked_for(session, 2) == [Propose(REQUEST, 1, 1, TEXT[:4], 2, wants_chances=True)]
    assert session.state is State.PROPOSING


@pytest.mark.parametrize("is_silent", [False, True])
@pytest.mark.parametrize("verification", ["match", "ratio"])
def test_where_the_draft_model_fails_what_the_index_says_goes_up(is_silent, verification):
    session, _ = begin(replace(REQUEST, verification=verification), chance=0.5)
    assert isinstance(asked_for(session, 1)[0], Propose)
    if is_silent:
        [sent] = session.tick(1.0 + DRAFTING_TIMEOUT_S)
    else:
        [sent] = session.proposed(Proposed(ID, 1, 1, ()), 2.0)
    assert (sent.message.tokens, sent.message.num_ngram) == (TEXT[4:5], 1)
    assert sent.message.proposal == (certain(TEXT[4:5]) if verification == "ratio" else None)
    assert session.state is State.WAITING


def test_drafts_of_both_are_told_apart_and_counted():
    """Two of three verified tokens are the index's; then the model drafts."""
    session, _ = begin(text=TEXT[:6])
    asked_for(session, 2)
    session.receive(verdict(4, TEXT[4:6], 2, round=1, num_verified=2, num_accepted=1), 2.0)
    assert session.statistics.drafted == {"ngram": 2}
    [sent] = session.proposed(Proposed(ID, 1, 2, (8, 9)), 3.0)
    assert sent.message.num_ngram == 0
    session.receive(verdict(6, [8, 7], 2, round=2, num_verified=2, num_accepted=1), 4.0)
    assert session.statistics.drafted == {"ngram": 2, "model": 2}
    assert session.statistics.accepted == {"ngram": 1, "model": 1}


def test_a_draft_of_the_index_is_followed_by_one_of_the_model_made_ahead():
    session, _ = begin(draft_ahead=True)
    [_, ahead] = asked_for(session, 2)
    assert ahead == Propose(REQUEST, 1, 2, TEXT[:6], 3, ahead=True, wants_chances=True)
    [sent] = session.proposed(Proposed(ID, 1, 2, (8, 9), guess=12), 2.0)
    assert (sent.message.assumes, sent.message.num_ngram) == (True, 0)
    session.receive(verdict(4, TEXT[4:7], 2, round=1, num_verified=2, num_accepted=2), 2.0)
    session.receive(verdict(7, [8, 7], 0, round=2, num_verified=2, num_accepted=1), 3.0)
    assert session.statistics.accepted == {"ngram": 2, "model": 1}


@pytest.mark.parametrize("request_", [REQUEST, replace(REQUEST, drafter="ngram")])
@pytest.mark.parametrize("chance", [0.9, 0.1])
def test_without_a_draft_model_everything_goes_up_at_once(request_, chance):
    session, opened = begin(request_, has_model=request_.drafter == "ngram", chance=chance, draft_ahead=True)
    assert len(opened) == 1, "no cache is warmed"
    [sent] = asked_for(session, 2)
    assert (sent.message.tokens, sent.message.num_ngram) == (TEXT[4:6], 2)


@pytest.mark.parametrize("verification", ["match", "ratio"])
def test_without_a_draft_model_nothing_is_said_at_once_too(verification):
    session, _ = begin(replace(REQUEST, verification=verification), has_model=False, text=())
    assert asked_for(session, 2) == [Send(Draft(ID, 1, 1, 4, digest(TEXT[:4]), ()))]


@pytest.mark.parametrize("drafter", ["model", "none"])
def test_who_may_not_draft_at_a_node_without_a_model_does_not(drafter):
    session = Session(replace(REQUEST, drafter=drafter), has_model=False)
    session.connect(0.0)
    assert asked_for(session, 2) == [Send(Draft(ID, 1, 1, 4, digest(TEXT[:4]), ()))]


def test_an_older_verify_node_is_not_told_what_drafted_but_it_is_counted():
    session, _ = begin(capabilities=(), has_model=False)
    [sent] = asked_for(session, 2)
    assert sent.message == Draft(ID, 1, 1, 4, digest(TEXT[:4]), TEXT[4:6])
    session.receive(verdict(4, TEXT[4:6], 2, round=1, num_verified=2, num_accepted=1), 2.0)
    assert session.statistics.accepted == {"ngram": 1}


def test_under_the_ratio_rule_tokens_are_sent_as_certain():
    session, _ = begin(replace(REQUEST, verification="ratio"), has_model=False)
    [sent] = asked_for(session, 3)
    draft = sent.message
    assert (draft.tokens, draft.odds, draft.num_ngram) == (TEXT[4:7], None, 3)
    probs = proposals.decode(draft.proposal, 3, 40, draft.tokens)
    assert [row.nonzero().flatten().tolist() for row in probs] == [[token] for token in draft.tokens]
    assert probs.sum(1).tolist() == [1.0] * 3


def test_certain_tokens_of_any_vocabulary_are_read_as_probability_1():
    tokens = (0, 5, 151_935)
    probs = proposals.decode(certain(tokens), 3, 151_936, tokens)
    assert probs.gather(1, probs.argmax(1, keepdim=True)).flatten().tolist() == [1.0] * 3
    assert tuple(probs.argmax(1).tolist()) == tokens
    assert certain(()) == b""
