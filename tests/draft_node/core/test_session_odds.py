"""Odds of drafted tokens on their way to the verify node, and least odds on their way to the draft model."""

import pytest
from msgspec.structs import replace

from draft_node.core.actions import Propose, Proposed, Request, Send
from draft_node.core.session import Session
from goodspeed.wire import odds
from goodspeed.wire.codec import decode_up, encode
from goodspeed.wire.messages import Draft, OpenSession, Sampling, Verdict

ID = b"0123456789abcdef"
REQUEST = Request(ID, (1, 2, 3), Sampling(seed=5), max_tokens=20, stop_ids=(0,))
BOTH = ("odds", "offers")


def verdict(base_len, tokens, next_length=2, **changes):
    return replace(Verdict(ID, 1, None, base_len, tuple(tokens), 0, 0, next_length), **changes)


def proposed(round, tokens, chances, **changes):
    return Proposed(ID, 1, round, tuple(tokens), chances=chances, **changes)


def begin(capabilities=BOTH, request=REQUEST):
    session = Session(request, draft_ahead=True)
    opened = session.connect(0.0, capabilities=capabilities)[0].message
    return session, opened


def test_the_odds_of_a_draft_go_up_with_it():
    session, _ = begin()
    session.receive(verdict(3, [7]), 1.0)
    [sent, *_] = session.proposed(proposed(1, [8, 9, 4], (0.5, 1.0, 0.1)), 2.0)
    assert sent.message.tokens == (8, 9)
    assert sent.message.odds == odds.encode([0.5, 1.0])


def test_so_do_those_of_a_draft_made_ahead():
    session, _ = begin()
    session.receive(verdict(3, [7]), 1.0)
    session.proposed(proposed(1, [8, 9], (0.5, 1.0)), 2.0)
    [sent] = session.proposed(proposed(2, [5, 6], (0.25, 0.5), guess=4), 2.1)
    assert (sent.message.assumes, sent.message.odds) == (True, odds.encode([0.25, 0.5]))


@pytest.mark.parametrize(("tokens", "chances"), [((8, 9), None), ((), ())])
def test_a_draft_without_odds_says_none(tokens, chances):
    session, _ = begin()
    session.receive(verdict(3, [7]), 1.0)
    assert session.proposed(proposed(1, tokens, chances), 2.0)[0].message.odds is None


def test_an_older_verify_node_gets_what_it_knows():
    session, opened = begin((), replace(REQUEST, drafter="model"))
    assert opened.drafter == "auto"
    [_, asked] = session.receive(verdict(3, [7]), 1.0)
    assert not asked.wants_chances
    sent = [*session.proposed(proposed(1, [8, 9], (0.5, 1.0), num_ngram=1), 2.0)]
    sent += session.proposed(proposed(2, [5, 6], (0.25, 0.5), guess=4, num_ngram=1), 2.1)
    for action in sent:
        if isinstance(action, Send):
            data = encode(action.message, 1 << 16)
            assert (decode_up(data, 1 << 16).odds, action.message.num_ngram) == (None, 0)


def test_what_may_draft_is_told_where_it_is_understood():
    wanted = replace(REQUEST, drafter="ngram")
    assert begin(BOTH, wanted)[1].drafter == "ngram"
    assert begin(("odds",), wanted)[1].drafter == "auto"


def test_who_wants_no_drafts_gets_none_from_any_verify_node():
    for capabilities in (BOTH, ()):
        session = Session(replace(REQUEST, drafter="none"))
        [opened] = session.connect(0.0, capabilities=capabilities)
        assert isinstance(opened.message, OpenSession)
        assert opened.message.max_draft == 0


def test_the_draft_model_is_told_the_least_odds_of_the_last_verdict():
    session, _ = begin()
    [_, asked] = session.receive(verdict(3, [7], least_odds=odds.code(0.25)), 1.0)
    assert asked == Propose(REQUEST, 1, 1, (1, 2, 3, 7), 2, least_odds=0.25, wants_chances=True)
    [sent, ahead] = session.proposed(proposed(1, [8, 9], (0.9, 0.9)), 2.0)
    assert isinstance(sent.message, Draft)
    assert (ahead.least_odds, ahead.wants_chances) == (0.25, True)
    [_, asked] = session.receive(verdict(4, [8, 9, 4], round=1, num_verified=2, num_accepted=2), 3.0)
    assert asked.least_odds == 0.0, "255 is no bound"
