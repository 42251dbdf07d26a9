"""Offers of a session at length 0: when there is one, when an Ack says as much, and what they never do."""

import pytest
from msgspec.structs import replace

from draft_node.core.actions import Deliver, Propose, Request, Send
from draft_node.core.drafts.offers import ENOUGH, OFFER_LENGTH
from draft_node.core.retransmission import RESEND_S
from draft_node.core.session import Session
from draft_node.core.state import State
from goodspeed.wire import odds
from goodspeed.wire.messages import Ack, Offer, OpenSession, Refusal, Sampling, Verdict
from tests.draft_node.core.scripted import ScriptedDrafter

ID = b"0123456789abcdef"
PROMPT = (1, 2, 3)
TEXT = (*PROMPT, *range(10, 110))
REQUEST = Request(ID, PROMPT, Sampling(seed=5), max_tokens=100)


def verdict(base_len, tokens, next_length=0, **changes):
    return replace(Verdict(ID, 1, None, base_len, tuple(tokens), 0, 0, next_length), **changes)


def begin(request=REQUEST, capabilities=("odds", "offers"), text=TEXT, **options):
    drafter = ScriptedDrafter(request, text=text)
    session = Session(request, ngrams=drafter, **options)
    session.connect(0.0, capabilities=capabilities)
    return session, drafter


def follow(session, position, number=1, **changes):
    """Gives the session so many tokens of TEXT at a position; returns the message that it answers."""
    [_, answer] = session.receive(verdict(position, TEXT[position : position + number], **changes), 1.0)
    return answer.message


def offered(position, length=OFFER_LENGTH):
    tokens = TEXT[position : position + length]
    return Offer(ID, 1, position, tokens, odds.encode([0.9] * len(tokens)))


def test_what_the_index_expects_is_offered_in_place_of_the_ack():
    session, _ = begin()
    assert session.receive(verdict(3, [10]), 1.0) == [Deliver((10,)), Send(offered(4))]
    assert session.state is State.ADVANCING


def test_an_offer_that_reaches_far_enough_is_followed_by_acks_and_the_index_is_not_asked():
    session, drafter = begin()
    follow(session, 3)
    position = 4
    while TEXT.index(TEXT[position]) + 1 <= 4 + OFFER_LENGTH - ENOUGH:
        assert follow(session, position) == Ack(ID, 1, position + 1)
        position += 1
    assert len(drafter.asked) == 1
    assert follow(session, position) == offered(position + 1)


def test_an_offer_that_came_true_at_once_is_followed_by_the_next():
    session, _ = begin()
    follow(session, 3)
    assert follow(session, 4, OFFER_LENGTH + 1) == offered(5 + OFFER_LENGTH)


def test_a_short_offer_is_not_said_again():
    session, drafter = begin(text=TEXT[:7])
    assert follow(session, 3) == offered(4, 3)
    assert follow(session, 4) == Ack(ID, 1, 5)
    assert len(drafter.asked) == 2
    drafter.text = TEXT[:8]
    assert follow(session, 5) == offered(6, 2), "one token more than is offered"
    drafter.text = TEXT[:7]
    assert follow(session, 6) == Ack(ID, 1, 7), "nothing is expected: what is offered stays so"


def test_a_text_that_goes_another_way_gets_another_offer():
    session, drafter = begin()
    follow(session, 3)
    drafter.text = (*TEXT[:4], 99, *TEXT[5:])
    [_, answer] = session.receive(verdict(4, [99]), 1.0)
    assert answer.message == replace(offered(5), tokens=TEXT[5 : 5 + OFFER_LENGTH])


@pytest.mark.parametrize("capabilities", [(), ("odds",)])
def test_an_older_verify_node_gets_acks(capabilities):
    session, drafter = begin(capabilities=capabilities)
    assert follow(session, 3) == Ack(ID, 1, 4)
    assert not drafter.asked


def test_a_session_of_the_ratio_rule_offers_nothing():
    session, _ = begin(replace(REQUEST, verification="ratio"))
    assert follow(session, 3) == Ack(ID, 1, 4)


def test_offers_keep_to_the_draft_nodes_own_cap_and_to_the_verify_nodes_least_odds():
    session, drafter = begin(replace(REQUEST, max_draft=5))
    assert follow(session, 3, least_odds=odds.code(0.5)) == offered(4, 5)
    assert drafter.asked == [(4, 5, 0.5)]


def test_an_offer_is_never_repeated():
    session, _ = begin()
    follow(session, 3)
    assert session.tick(1.0 + RESEND_S) == [Send(Ack(ID, 1, 4))]
    assert session.receive(verdict(3, [10]), 3.0) == [], "a verdict that comes again"
    assert session.receive(verdict(6, [13]), 3.0) == [Send(Ack(ID, 1, 4))], "a gap"


def test_a_session_that_is_opened_anew_offers_anew():
    session, _ = begin()
    follow(session, 3)
    [opened, *_] = session.receive(Refusal("unknown_session", "what", "to do", ID, 1), 2.0)
    assert isinstance(opened.message, OpenSession)
    [_, answer] = session.receive(verdict(4, [11], epoch=2), 3.0)
    assert answer.message == replace(offered(5), epoch=2)


def test_a_verify_node_of_an_older_release_that_takes_over_gets_none():
    session, _ = begin()
    follow(session, 3)
    session.disconnect()
    session.connect(2.0, capabilities=())
    [_, answer] = session.receive(verdict(4, TEXT[4:40], epoch=2), 3.0)
    assert answer.message == Ack(ID, 2, 40)


def test_an_assigned_length_gets_a_draft_and_no_offer():
    session, drafter = begin()
    drafter.text = ()
    assert isinstance(session.receive(verdict(3, [10], next_length=2), 1.0)[1], Propose)


def test_accepted_tokens_of_an_offer_are_told_and_counted():
    session, _ = begin()
    follow(session, 3)
    told = session.receive(verdict(4, TEXT[4:7], num_verified=3, num_accepted=2, source="ngram"), 2.0)
    assert told[0] == Deliver(TEXT[4:7], (), (True, True, False))
    told = session.receive(verdict(7, TEXT[7:8], num_verified=1, source="self"), 3.0)
    assert told[0] == Deliver(TEXT[7:8])
    assert session.statistics.drafted == {"ngram": 3, "self": 1}
    assert session.statistics.accepted == {"ngram": 2}
    assert (session.statistics.num_drafted, session.statistics.num_accepted) == (4, 2)


def test_accepted_tokens_are_found_in_a_verdict_that_is_sent_again():
    """It begins with the target's own token of a verdict that was lost; one that is known whole counts nothing."""
    session, _ = begin()
    follow(session, 3)
    again = verdict(4, TEXT[4:8], num_verified=3, num_accepted=2, source="self")
    assert session.receive(again, 2.0)[0] == Deliver(TEXT[4:8], (), (False, True, True, False))
    assert session.receive(again, 2.0) == []
    assert session.statistics.accepted == {"self": 2}


def test_accepted_tokens_at_the_end_of_a_text_have_no_token_after_them():
    session, _ = begin()
    ended = verdict(3, TEXT[3:5], num_verified=2, num_accepted=2, source="ngram", finish_reason="stop")
    assert session.receive(ended, 1.0)[0] == Deliver(TEXT[3:5], (), (True, True))
