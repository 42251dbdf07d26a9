"""Drafting ahead of a verdict at the draft node: what is sent, and what becomes of it when the verdict comes."""

import pytest
from msgspec.structs import replace

from draft_node.core.actions import Deliver, Finish, Propose, Proposed, Request, Send
from draft_node.core.drafts.ahead_rate import LEAST_RATE, AheadRate
from draft_node.core.retransmission import RESEND_S
from draft_node.core.session import Session
from draft_node.core.state import State
from goodspeed.wire.messages import Ack, Close, Draft, Refusal, Sampling, Verdict, digest

ID = b"0123456789abcdef"
REQUEST = Request(ID, (1, 2, 3), Sampling(seed=5), max_tokens=20, stop_ids=(0,))


def verdict(base_len, tokens, next_length=2, *, round=None, finish_reason=None, dropped=None, verified=2, accepted=2):
    tokens = tuple(tokens)
    return Verdict(ID, 1, round, base_len, tokens, verified, accepted, next_length, finish_reason, None, dropped)


def proposed(round, tokens, guess=None, **changes):
    return Proposed(ID, 1, round, tuple(tokens), None, 0.0, guess, **changes)


def ahead_of(round, text, tokens):
    return Draft(ID, 1, round, len(text), digest(text), tuple(tokens), assumes=True)


def begin(**changes):
    """A session of which the draft of round 1, tokens 8 and 9 after 1 2 3 7, is in flight."""
    session = Session(replace(REQUEST, **changes), draft_ahead=True)
    session.connect(0.0)
    session.receive(verdict(3, [7], verified=0, accepted=0), 1.0)
    return session, session.proposed(proposed(1, [8, 9]), 2.0)


@pytest.fixture
def session():
    return begin()[0]


@pytest.fixture
def hoping(session):
    """The same session with the draft of round 2 in flight, too, on the hope that the token after them is a 4."""
    session.proposed(proposed(2, [5, 6], guess=4), 2.1)
    return session


def test_while_a_draft_is_in_flight_the_next_is_asked_for():
    _, actions = begin()
    assert actions == [
        Send(Draft(ID, 1, 1, 4, digest((1, 2, 3, 7)), (8, 9))),
        Propose(REQUEST, 1, 2, (1, 2, 3, 7, 8, 9), 3, ahead=True),  # as long, and the guess
    ]


def test_it_is_sent_at_once_with_what_it_assumes(session):
    actions = session.proposed(proposed(2, [5, 6], guess=4), 2.1)
    assert actions == [Send(ahead_of(2, (1, 2, 3, 7, 8, 9, 4), (5, 6)))]
    assert session.state is State.WAITING
    assert session.statistics.num_ahead == 1


def test_what_came_true_is_the_draft_in_flight(hoping):
    """It is acknowledged what it could not acknowledge itself, and the next draft ahead follows."""
    assert hoping.receive(verdict(4, [8, 9, 4], round=1), 3.0) == [
        Deliver((8, 9, 4), (), (True, True, False)),
        Send(Ack(ID, 1, 7)),
        Propose(REQUEST, 1, 3, (1, 2, 3, 7, 8, 9, 4, 5, 6), 3, ahead=True),
    ]
    assert hoping.state is State.WAITING
    assert hoping.statistics.num_ahead_true == 1
    assert hoping.proposed(proposed(3, [2, 2], guess=1), 3.1) == [
        Send(ahead_of(3, (1, 2, 3, 7, 8, 9, 4, 5, 6, 1), (2, 2)))
    ]
    assert hoping.receive(verdict(7, [5, 6, 1], round=2), 4.0)[0] == Deliver((5, 6, 1), (), (True, True, False))
    assert hoping.statistics.num_ahead_true == 2


def test_the_next_assumes_no_more_than_was_assigned(hoping):
    """The verify node cuts a draft made ahead to next_length."""
    actions = hoping.receive(verdict(4, [8, 9, 4], 1, round=1), 3.0)
    assert actions[-1] == Propose(REQUEST, 1, 3, (1, 2, 3, 7, 8, 9, 4, 5), 2, ahead=True)
    [send] = hoping.proposed(proposed(3, [2], guess=1), 3.1)
    assert send.message == ahead_of(3, (1, 2, 3, 7, 8, 9, 4, 5, 1), (2,))


@pytest.mark.parametrize("tokens", [[8, 9, 5], [8, 4], [4]])
def test_what_did_not_come_true_is_forgotten(hoping, tokens):
    actions = hoping.receive(verdict(4, tokens, round=1, dropped=2, accepted=len(tokens) - 1), 3.0)
    accepted = (*[True] * (len(tokens) - 1), False) if len(tokens) > 1 else ()
    assert actions == [Deliver(tuple(tokens), (), accepted), Propose(REQUEST, 1, 3, (1, 2, 3, 7, *tokens), 2)]
    assert hoping.statistics.num_ahead_true == 0


def test_what_the_verify_node_dropped_is_made_again(hoping):
    actions = hoping.receive(verdict(4, [8, 9, 4], round=1, dropped=2), 3.0)
    assert actions[-1] == Propose(REQUEST, 1, 3, (1, 2, 3, 7, 8, 9, 4), 2)


def test_length_0_ends_it(hoping):
    assert hoping.receive(verdict(4, [8, 9, 4], 0, round=1, dropped=2), 3.0) == [
        Deliver((8, 9, 4), (), (True, True, False)),
        Send(Ack(ID, 1, 7)),
    ]
    assert hoping.state is State.ADVANCING
    assert hoping.tick(9.0) == [Send(Ack(ID, 1, 7))]


def test_the_end_ends_it(hoping):
    last = verdict(4, [8, 9, 4], 0, round=1, finish_reason="stop", dropped=2)
    assert hoping.receive(last, 3.0) == [
        Deliver((8, 9, 4), (), (True, True, False)),
        Send(Close(ID, 1)),
        Finish("stop"),
    ]


def test_a_verdict_that_comes_before_the_proposal_makes_it_an_ordinary_one(session):
    actions = session.receive(verdict(4, [8, 9, 4], round=1), 3.0)
    assert actions[-1] == Propose(REQUEST, 1, 3, (1, 2, 3, 7, 8, 9, 4), 2)
    assert session.proposed(proposed(2, [5, 6], guess=4), 3.1) == []  # it was done in the same moment
    assert session.proposed(proposed(3, [5, 6]), 3.2)[0] == Send(
        Draft(ID, 1, 3, 7, digest((1, 2, 3, 7, 8, 9, 4)), (5, 6))
    )


def test_all_that_is_in_flight_is_repeated_byte_for_byte(session):
    [ahead] = session.proposed(proposed(2, [5, 6], guess=4), 2.1)
    draft = Send(Draft(ID, 1, 1, 4, digest((1, 2, 3, 7)), (8, 9)))
    assert session.tick(2.0 + RESEND_S) == [draft, ahead]
    session.receive(verdict(4, [8, 9, 4], round=1), 4.0)
    assert session.tick(4.0 + 2 * RESEND_S) == [ahead]


def test_a_repeated_verdict_changes_nothing(hoping):
    first = verdict(4, [8, 9, 4], round=1)
    hoping.receive(first, 3.0)
    assert hoping.receive(first, 3.1) == []


def test_the_verdicts_of_both_in_one(hoping):
    """The first was lost; the verify node sends all that is unacknowledged with the second."""
    assert hoping.receive(verdict(7, [5, 6, 2], round=2), 3.0) == [Send(Ack(ID, 1, 4))]
    actions = hoping.receive(verdict(4, [8, 9, 4, 5, 6, 2], round=2), 3.1)
    accepted = (False, False, False, True, True, False)  # of the last verdict; what the other said is lost
    assert actions == [
        Deliver((8, 9, 4, 5, 6, 2), (), accepted),
        Propose(REQUEST, 1, 3, (1, 2, 3, 7, 8, 9, 4, 5, 6, 2), 2),
    ]
    assert hoping.statistics.num_ahead_true == 1


def test_opened_again_nothing_is_in_flight(hoping):
    opened, warm = hoping.receive(Refusal("unknown_session", "what", "what to do", ID, 1), 3.0)
    assert (opened.message.epoch, opened.message.committed) == (2, (7,))
    assert (warm.round, warm.ahead) == (3, False)
    assert hoping.tick(3.0 + RESEND_S) == [Send(Ack(ID, 2, 4))]


@pytest.mark.parametrize("missing", [{"tokens": (), "guess": None}, {"tokens": (), "guess": 4}])
def test_a_draft_model_that_could_not_sends_nothing(session, missing):
    assert session.proposed(proposed(2, **missing), 2.1) == []
    assert session.tick(2.0 + RESEND_S) == [Send(Draft(ID, 1, 1, 4, digest((1, 2, 3, 7)), (8, 9)))]
    assert session.receive(verdict(4, [8], round=1), 4.0)[-1].round == 3


def test_nothing_is_drafted_beyond_the_end(session):
    assert session.proposed(proposed(2, [5, 6], guess=0), 2.1) == []  # the guess ends the text
    for stop_ids in [(8,), (9,)]:
        assert len(begin(stop_ids=stop_ids)[1]) == 1


@pytest.mark.parametrize(("max_tokens", "length"), [(7, 2), (6, 1), (5, 0)])
def test_nothing_is_drafted_beyond_the_last_token(max_tokens, length):
    """The text has 7 8 9 and the guess, and always gets one token more from the target."""
    asked = [action.length for action in begin(max_tokens=max_tokens)[1] if isinstance(action, Propose)]
    assert asked == ([length + 1] if length else [])


def test_after_an_empty_draft_there_is_nothing_to_assume(session):
    session.receive(verdict(4, [5], round=1), 3.0)
    assert len(session.tick(99.0)) == 1  # the draft model took too long


def test_off_means_off():
    session = Session(REQUEST)
    session.connect(0.0)
    session.receive(verdict(3, [7]), 1.0)
    assert len(session.proposed(proposed(1, [8, 9]), 2.0)) == 1


def test_where_it_seldom_comes_true_it_is_left_alone_until_it_would():
    session, _ = begin(max_tokens=1000)

    def step(tokens, accepted):
        """Sends an ordinary draft of 5 and 5, receives its verdict, and returns whether anything was asked for
        ahead."""
        draft, *more = session.proposed(proposed(session.round, [5, 5]), 1.0)
        base_len = draft.message.base_len
        session.receive(verdict(base_len, tokens, round=draft.message.round, verified=2, accepted=accepted), 1.0)
        return bool(more)

    session.receive(verdict(4, [6], round=1, accepted=0), 3.0)
    tried = [step([6], 0) for _ in range(20)]
    assert tried[0]
    assert not tried[-1]
    session.statistics.num_drafted = session.statistics.num_accepted = 0
    tried = [step([5, 5, 1], 2) for _ in range(20)]
    assert not tried[0]
    assert tried[-1]


def test_odds():
    odds = AheadRate(value=0.5)
    assert odds.is_worthwhile
    for _ in range(20):
        odds.observe(0.0)
    assert odds.value < LEAST_RATE
    assert not odds.is_worthwhile
    for _ in range(20):
        odds.observe(1.0)
    assert odds.is_worthwhile


def test_nothing_is_made_ahead_of_a_draft_in_doubt():
    session = Session(REQUEST, draft_ahead=True)
    session.connect(0.0)
    session.receive(verdict(3, [7], verified=0, accepted=0), 1.0)
    assert len(session.proposed(proposed(1, [8, 9], odds=LEAST_RATE - 0.01), 2.0)) == 1  # the draft alone


def test_nothing_is_made_ahead_of_what_came_true_and_is_in_doubt(session):
    session.proposed(proposed(2, [5, 6], guess=4, odds=LEAST_RATE - 0.01), 2.1)
    actions = session.receive(verdict(4, [8, 9, 4], round=1), 3.0)
    assert actions == [Deliver((8, 9, 4), (), (True, True, False)), Send(Ack(ID, 1, 7))]


def test_a_second_answer_to_the_same_question_is_not_sent(hoping):
    """The verify node takes one draft for a round; another one would be refused, or verified in its place."""
    assert hoping.proposed(proposed(2, [5, 7], guess=6), 2.2) == []
    [_, again] = hoping.tick(100.0)
    assert again == Send(ahead_of(2, (1, 2, 3, 7, 8, 9, 4), (5, 6)))
