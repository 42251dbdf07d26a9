"""A session on the verify node derives its properties from what it knows."""

from itertools import permutations

import pytest

from goodspeed.exact.proposal_bytes import certain
from goodspeed.serving.measuring.story import WrongTransition
from tests.fakes import session_id
from tests.verify_node.phases import a_draft, make_session, new_client, tell
from verify_node.clients.client import LATE_ROUNDS


@pytest.mark.parametrize(
    ("may_draft", "waits", "draft", "awaits"),
    [
        (0, True, None, False), (4, False, None, False), (4, True, None, True), (4, True, {"complete": False}, True),
        (4, True, {"complete": True}, False), (4, True, {"complete": True, "tokens": ()}, False),
    ],
)  # fmt: skip
def test_readiness(may_draft, waits, draft, awaits):
    session = make_session()
    session.commit((7,))
    tell(session, 0.0, may_draft=may_draft, waits=waits)
    if draft is not None:
        session.take_draft(a_draft(session, **draft), 0.0)
    assert (session.can_move(0.0), session.awaits_draft) == (not awaits, awaits)


def test_a_finished_session_is_neither_ready_nor_waiting_and_commits_no_more():
    session = make_session(max_tokens=1)
    session.drafts.waits = True
    session.take_draft(a_draft(), 0.0)
    session.commit((7,))
    assert session.finished
    assert not any([session.can_move(0.0), session.awaits_draft, session.takes_drafts])
    with pytest.raises(WrongTransition, match=f"session {session_id(1).hex()} is finished"):
        session.commit((4,))


@pytest.mark.parametrize(("max_draft", "num_tokens", "longest"), [(64, 0, 19), (64, 15, 4), (64, 19, 0), (3, 0, 3)])
def test_the_longest_useful_draft(max_draft, num_tokens, longest):
    session = make_session(max_draft=max_draft)
    session.commit((4,) * num_tokens)
    assert session.max_length == longest


def test_a_round_trip_is_from_the_verdict_that_is_answered():
    session = make_session()
    for length, at in [(4, 1.0), (5, 2.0), (6, 3.0)]:
        session.sent.append((length, at))
    session.acknowledge(5, 2.5, 0.0)
    assert session.round_trip_s == session.client.round_trip_s == 0.5
    session.acknowledge(6, 5.0, 0.0)
    assert session.round_trip_s == pytest.approx(0.5 + 0.2 * (2.0 - 0.5))
    session.acknowledge(6, 9.0, 0.0)  # nothing new is answered
    assert session.round_trip_s == pytest.approx(0.8)


# -- its draft ---------------------------------------------------------------------------------------------------------


def test_the_newest_draft_is_kept_in_whatever_order_they_arrive_and_of_two_for_the_same_text_the_later_one():
    for order in permutations([(3, (4, 5, 6, 7)), (4, (5, 6, 7, 8)), (5, (6, 7, 8, 9))]):
        session = make_session()
        session.commit((4, 5))
        for base_len, tokens in order:
            session.take_draft(a_draft(base_len=base_len, tokens=tokens), 0.0)
        assert session.drafts.newest.tokens == (6, 7, 8, 9)
    session = make_session()
    session.take_draft(a_draft(tokens=(4,)), 0.0)
    session.take_draft(a_draft(tokens=(4, 5), complete=True), 0.0)
    assert (session.drafts.newest.tokens, session.drafts.newest.complete) == ((4, 5), True)
    session.take_draft(a_draft(tokens=(4,)), 0.0)
    assert session.drafts.newest.complete, "of one text nothing is sent after what is complete"


def test_a_draft_for_less_of_the_text_is_of_use_where_the_text_goes_on_as_it_says():
    session = make_session()
    session.commit((4,))
    session.take_draft(a_draft(tokens=(4, 5, 6), probabilities=bytes((1, 2, 3))), 0.0)
    assert (session.drafts.newest.tokens, session.drafts.newest.codes) == ((5, 6), bytes((2, 3)))
    session.take_draft(a_draft(tokens=(7, 5, 6)), 0.0)
    assert session.drafts.newest is None, "and it was the newest that the draft node sent"


def test_that_nothing_is_drafted_holds_for_its_text_only():
    session = make_session()
    session.take_draft(a_draft(tokens=(), complete=True), 0.0)
    assert session.drafts.newest.complete
    session.commit((4,))
    assert session.drafts.newest is None
    session.take_draft(a_draft(tokens=(), complete=True), 0.0)
    assert session.drafts.newest is None


def test_a_ratio_draft_is_verified_once():
    session = make_session(verification="ratio")
    session.drafts.permit(3, 1)
    draft = a_draft(tokens=(4, 5, 6), complete=True, proposal=certain((4, 5, 6)))
    session.take_draft(draft, 0.0)
    assert session.drafts.newest.tokens == (4, 5, 6)
    session.commit((4,))
    assert session.drafts.newest is None
    session.take_draft(draft, 0.0)
    assert session.drafts.newest is None, "it was made for less of the text"


@pytest.mark.parametrize(("drafter", "num_kept"), [("auto", 2), ("model", 2), ("ngram", 0), ("none", 0)])
def test_of_a_ratio_draft_only_what_may_be_verified_is_kept(drafter, num_kept):
    """Its distributions are large, and stay until the next round of the session."""
    session = make_session(verification="ratio", drafter=drafter)
    session.drafts.permit(2, 1)
    session.take_draft(a_draft(tokens=(4, 5, 6), complete=True, proposal=certain((4, 5, 6))), 0.0)
    kept = (4, 5)[:num_kept]
    assert (session.drafts.newest.tokens, session.drafts.newest.proposal) == (kept, certain(kept))
    assert session.drafts.newest.complete


@pytest.mark.parametrize(("source", "calls"), [("ngram", False), ("model", True)])
def test_under_the_ratio_rule_the_index_answers_instead_of_the_model(source, calls):
    session = make_session(verification="ratio")
    session.drafts.timer.answered(0.0)
    session.drafts.timer.verdict_goes_out(0.0, calls=True)
    session.take_draft(a_draft(tokens=(4,), source=source, complete=True, proposal=certain((4,))), 1.0)
    assert session.drafts.timer.is_called == calls
    assert session.client.answer_s == float(calls)


def test_a_complete_draft_ends_the_wait_when_it_arrives():
    session = make_session()
    session.commit((7,))
    tell(session, 1.0, waits=True)
    session.take_draft(a_draft(session), 2.0)
    assert session.awaits_draft
    session.take_draft(a_draft(session, complete=True), 3.0)
    assert (session.awaits_draft, session.ready_since) == (False, 3.0)


def test_one_pause_of_a_client_counts_once_however_many_sessions_it_has():
    client = new_client("a")
    for _ in range(16):
        client.miss_draft(100)
    assert client.num_late == 1
    assert client.retry_round == 100 + 2 * LATE_ROUNDS
    client.miss_draft(client.retry_round)
    assert client.num_late == 2
