"""A session whose draft model drafts unasked, while the verify node goes on by itself."""

import pytest
from msgspec.structs import replace

from draft_node.core.actions import Deliver, Propose, Proposed, Request, Send
from draft_node.core.drafts.offers import MAX_SILENT
from draft_node.core.drafts.resting import LEAST_TRIAL, REST, Resting
from draft_node.core.drafts.tree import SECOND
from draft_node.core.session import Session
from draft_node.core.state import State
from goodspeed.wire import odds
from goodspeed.wire.messages import Ack, Draft, Offer, Sampling, Verdict
from tests.draft_node.core.scripted import ScriptedDrafter

ID = b"0123456789abcdef"
PROMPT = (1, 2, 3)
REQUEST = Request(ID, PROMPT, Sampling(seed=5), max_tokens=100)
KNOWN = ("odds", "offers", "model_offers")


def begin(request=REQUEST, capabilities=KNOWN, ahead=True, **options):
    session = Session(request, draft_ahead=ahead, **options)
    session.connect(0.0, capabilities=capabilities)
    return session


def verdict(base_len, *tokens, may_draft=8, **changes):
    return replace(Verdict(ID, 1, None, base_len, tokens, 0, 0, 0, may_draft=may_draft), **changes)


def answer(wanted, *tokens, chance=0.9):
    return Proposed(ID, wanted.epoch, wanted.round, tokens, chances=(chance,) * len(tokens))


def offer(base_len, *tokens, chance=0.9):
    return Send(Offer(ID, 1, base_len, tokens, odds.encode([chance] * len(tokens)), "model"))


def drafting(session):
    """The first verdict, after which the draft model is at work; returns what it was asked for."""
    delivered, acknowledged, wanted = session.receive(verdict(3, 10), 1.0)
    assert (delivered, acknowledged) == (Deliver((10,)), Send(Ack(ID, 1, 4)))
    return wanted


def test_the_draft_model_drafts_on_from_the_text_and_offers_what_it_has():
    session = begin()
    wanted = drafting(session)
    assert (wanted.tokens, wanted.wants_chances, wanted.ahead) == ((*PROMPT, 10), True, False)
    offered, wanted = session.proposed(answer(wanted, 11, 12), 1.1)
    assert offered == offer(4, 11, 12)
    assert wanted.tokens == (*PROMPT, 10, 11, 12)
    assert session.state is State.ADVANCING


def test_while_the_text_follows_it_the_draft_model_is_not_disturbed():
    session = begin()
    _, wanted = session.proposed(answer(drafting(session), 11, 12), 1.1)
    assert session.receive(verdict(4, 11), 1.2) == [Deliver((11,)), Send(Ack(ID, 1, 5))], "the rest is known there"
    offered, _ = session.proposed(answer(wanted, 13), 1.3)
    assert offered == offer(5, 12, 13)


def test_a_text_that_goes_otherwise_is_drafted_for_anew_and_an_old_draft_is_of_no_use():
    session = begin()
    _, old = session.proposed(answer(drafting(session), 11, 12), 1.1)
    _, acknowledged, wanted = session.receive(verdict(4, 20), 1.2)
    assert acknowledged == Send(Ack(ID, 1, 5))
    assert wanted.tokens == (*PROMPT, 10, 20)
    assert session.proposed(answer(old, 13), 1.3) == []
    assert session.proposed(answer(wanted, 21), 1.4)[0] == offer(5, 21)


def test_a_draft_that_the_text_has_overtaken_counts_as_far_as_it_came_true():
    session = begin()
    wanted = drafting(session)
    assert session.receive(verdict(4, 11), 1.2) == [Deliver((11,)), Send(Ack(ID, 1, 5))], "the model is still at it"
    assert session.proposed(answer(wanted, 11, 12), 1.3)[0] == offer(5, 12)


def test_a_draft_that_the_text_has_overtaken_otherwise_begins_a_new_one():
    session = begin()
    wanted = drafting(session)
    session.receive(verdict(4, 20), 1.2)
    [again] = session.proposed(answer(wanted, 11, 12), 1.3)
    assert isinstance(again, Propose)
    assert again.tokens == (*PROMPT, 10, 20)


def test_a_model_that_fails_is_asked_again_with_the_next_verdict():
    session = begin()
    assert session.proposed(answer(drafting(session)), 1.1) == []
    assert session.receive(verdict(4, 11), 1.2)[-1].tokens == (*PROMPT, 10, 11)


def test_of_model_and_index_the_one_that_is_expected_to_bring_more_is_offered():
    text = (*PROMPT, 10, 11, 12, 13)
    index = ScriptedDrafter(REQUEST, text=text, odds=0.5)
    session = begin(ngrams=index)
    _, first, wanted = session.receive(verdict(3, 10), 1.0)
    assert first.message.source == "ngram"
    unheard = session.proposed(answer(wanted, 21, chance=0.6), 1.1)
    assert [type(action) for action in unheard] == [Propose], "0.875 tokens are expected of the index"
    assert session.proposed(answer(unheard[0], 22, chance=0.6), 1.2)[0] == offer(4, 21, 22, chance=0.6)
    assert len(index.asked) == 1, "the index is asked once about a text"


@pytest.mark.parametrize(
    ("options", "may_draft"),
    [
        ({}, 0),
        ({"ahead": False}, 8),
        ({"has_model": False}, 8),
        ({"capabilities": ("odds", "offers")}, 8),
        ({"request": replace(REQUEST, verification="ratio")}, 8),
        ({"request": replace(REQUEST, drafter="ngram")}, 8),
        ({"request": replace(REQUEST, max_draft=0)}, 8),
    ],
)
def test_the_model_rests_where_it_may_not_or_cannot_offer(options, may_draft):
    actions = begin(**options).receive(verdict(3, 10, may_draft=may_draft), 1.0)
    assert actions == [Deliver((10,)), Send(Ack(ID, 1, 4))]


def test_the_draft_nodes_own_cap_holds():
    assert drafting(begin(replace(REQUEST, max_draft=2))).length == 2


def test_an_assigned_length_ends_the_chain():
    session = begin()
    _, old = session.proposed(answer(drafting(session), 11, 12), 1.1)
    *_, wanted = session.receive(verdict(4, 11, next_length=3), 1.2)
    assert (wanted.tokens, wanted.length) == ((*PROMPT, 10, 11), 3)
    assert session.proposed(answer(old, 13), 1.3) == []
    [sent, *_] = session.proposed(answer(wanted, 12), 1.4)
    assert isinstance(sent.message, Draft)


def test_a_draft_that_was_late_is_no_offer():
    """A session that went on without its draft may get it after all; nobody asked the chain for it."""
    session = begin()
    *_, wanted = session.receive(verdict(3, 10, next_length=3), 1.0)
    session.tick(100.0)
    session.receive(verdict(4, 11, may_draft=0), 100.1)
    assert session.proposed(answer(wanted, 11, 12), 100.2) == []


def test_a_chain_is_told_of_again_when_it_is_twice_as_long():
    session = begin()
    offered, wanted = session.proposed(answer(drafting(session), 11, 12), 1.1)
    assert offered == offer(4, 11, 12)
    [wanted] = session.proposed(answer(wanted, 13), 1.2)
    assert isinstance(wanted, Propose), "each message takes both nodes' time"
    assert session.proposed(answer(wanted, 14), 1.3)[0] == offer(4, 11, 12, 13, 14)


def test_a_model_that_may_offer_no_more_offers_nothing_that_it_has():
    session = begin()
    *_, wanted = session.receive(verdict(3, 10), 1.0)
    session.receive(verdict(4, 11, may_draft=0), 1.1)
    assert session.proposed(answer(wanted, 11, 12, 13), 1.2) == []
    assert session.receive(verdict(5, 12, may_draft=0), 1.3)[1:] == [Send(Ack(ID, 1, 6))]


def test_nobody_waits_for_it_and_what_is_drafted_is_not_verified():
    session = begin()
    first = drafting(session)
    _, second = session.proposed(answer(first, 11, 12), 1.1)
    assert [(one.is_awaited, one.num_unverified) for one in (first, second)] == [(False, 0), (False, 2)]


def late(session, num_tokens, start=3, source=None):
    """The text grows by one token after the other, and the draft model answers each time when it is too late."""
    wanted = None
    for length in range(start, start + num_tokens):
        accepted = {"num_verified": 1, "num_accepted": 1} if source else {}
        *_, last = session.receive(verdict(length, 50 + length, source=source, **accepted), 1.0)
        if wanted is not None:
            session.proposed(answer(wanted, 7), 1.0)
        wanted = last if isinstance(last, Propose) else wanted
    return last


def test_a_model_whose_tokens_come_too_late_is_not_asked_until_it_is_tried_again():
    resting = Resting()
    session = begin(replace(REQUEST, max_tokens=5000), resting=resting)
    length = len(PROMPT) + LEAST_TRIAL + 2  # before the first verdict nothing is permitted, and then it answers once
    last = late(session, LEAST_TRIAL + 2)
    assert resting.is_resting
    assert last == Send(Ack(ID, 1, length)), "nothing is asked of the draft model any more"
    last = late(session, REST, start=length)
    assert not resting.is_resting
    assert isinstance(last, Propose)
    assert (last.unasked, len(last.tokens)) == (True, length + REST)


def test_tokens_of_others_do_not_keep_a_model_from_resting_and_its_own_do():
    for source, rests in (("model", False), ("ngram", True), ("self", True)):
        resting = Resting()
        session = begin(replace(REQUEST, max_tokens=5000), resting=resting)
        late(session, LEAST_TRIAL + 2, source=source)
        assert resting.is_resting is rests, source


def test_a_model_that_is_still_reading_is_not_judged_unless_it_reads_for_long():
    resting = Resting()
    session = begin(replace(REQUEST, max_tokens=5000), resting=resting)
    for length in range(3, 3 + MAX_SILENT + LEAST_TRIAL):
        session.receive(verdict(length, 50 + length), 1.0)
        assert not resting.is_resting
    session.receive(verdict(length + 1, 7), 1.0)
    session.receive(verdict(length + 2, 7), 1.0)
    assert resting.is_resting


def test_where_the_verify_node_permits_nothing_the_model_is_not_judged():
    resting = Resting()
    session = begin(replace(REQUEST, max_tokens=5000), resting=resting)
    for base_len in range(3, 3 + 3 * LEAST_TRIAL):
        session.receive(verdict(base_len, 20, may_draft=0), 1.0)
    assert not resting.is_resting


# -- trees -------------------------------------------------------------------------------------------------------------


def test_alternatives_are_offered_to_verify_nodes_that_know_trees():
    session = begin(capabilities=(*KNOWN, "trees"))
    wanted = drafting(session)
    assert wanted.wants_alternatives
    offered, _ = session.proposed(replace(answer(wanted, 11, 12, chance=0.5), alternatives=(21, 22)), 1.1)
    second = 0.5 * SECOND
    claimed = odds.encode([0.5, 0.5, second, second])
    assert offered == Send(Offer(ID, 1, 4, (11, 12, 21, 22), claimed, "model", b"\x00\x01\x00\x01"))


def test_others_are_asked_for_and_offered_none():
    session = begin()
    wanted = drafting(session)
    assert not wanted.wants_alternatives
    offered, _ = session.proposed(replace(answer(wanted, 11, 12, chance=0.5), alternatives=(21, 22)), 1.1)
    assert offered == offer(4, 11, 12, chance=0.5)


def test_a_text_that_takes_an_alternative_is_drafted_for_anew():
    session = begin(capabilities=(*KNOWN, "trees"))
    _, old = session.proposed(replace(answer(drafting(session), 11, 12, chance=0.5), alternatives=(21, 22)), 1.1)
    *_, wanted = session.receive(verdict(4, 21, 30, num_verified=4, num_accepted=1, source="model"), 1.2)
    assert wanted.tokens == (*PROMPT, 10, 21, 30)
    assert session.proposed(answer(old, 13), 1.3) == []


def test_the_end_of_a_text_is_no_alternative():
    """The target ends it itself; nothing follows that."""
    session = begin(replace(REQUEST, stop_ids=(0,)), capabilities=(*KNOWN, "trees"))
    offered, _ = session.proposed(replace(answer(drafting(session), 11, chance=0.5), alternatives=(0,)), 1.1)
    assert offered == offer(4, 11, chance=0.5)
