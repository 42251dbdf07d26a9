"""What a session on the verify node derives from what it knows."""

import pytest

from goodspeed.fair.estimators import AcceptanceEstimator, GoodputEstimator
from goodspeed.wire.messages import Draft, digest
from tests.fakes import make_open, session_id
from tests.verify_node.phases import put
from verify_node.session.client import Client
from verify_node.session.session import Session


def make_session(**changes):
    opened = make_open(**changes)
    client = Client("a", AcceptanceEstimator(0.1, 0.7), GoodputEstimator(0.1, 1.0))
    tokens = [*opened.prompt, *opened.committed]
    limit = len(opened.prompt) + opened.max_tokens
    return Session(opened, b"a", client, client.acceptance, tokens, admitted=1, acked=len(tokens), limit=limit)


def a_draft():
    return Draft(session_id(1), 1, 0, 3, digest((1, 2, 3)), (4, 5))


def test_before_the_first_verdict_it_is_ready():
    session = make_session()
    assert session.is_ready()
    assert not session.is_drafting


@pytest.mark.parametrize(
    ("assigned", "draft", "ready", "awaits"),
    [(0, None, True, False), (4, None, False, True), (4, a_draft(), True, False)],
)
def test_readiness(assigned, draft, ready, awaits):
    session = make_session()
    put(session, assigned, draft)
    assert (session.is_ready(), session.awaits_draft) == (ready, awaits)


def test_a_finished_session_is_neither_ready_nor_drafting():
    session = make_session(max_tokens=1)
    put(session, 4, a_draft())
    session.commit((7,))
    assert session.finished
    assert not any([session.is_ready(), session.awaits_draft, session.is_drafting])


def test_the_window_counts_what_is_not_acknowledged():
    session = make_session()
    session.commit((4,) * 5)
    put(session, 0)
    assert session.is_ready(6)
    assert not session.is_ready(5)
    session.acknowledge(4, 0.0)
    assert session.is_ready(5)


@pytest.mark.parametrize(
    ("max_draft", "num_tokens", "longest"), [(1024, 0, 19), (1024, 15, 4), (1024, 19, 0), (3, 0, 3)]
)
def test_the_longest_useful_draft(max_draft, num_tokens, longest):
    session = make_session(max_draft=max_draft)
    session.commit((4,) * num_tokens)
    assert session.max_length == longest


def test_commit_takes_tokens_up_to_the_limit():
    session = make_session(max_tokens=2)
    assert session.commit((4, 5, 6)) == (4, 5)
    assert session.tokens == [1, 2, 3, 4, 5]
    assert session.finish_reason == "length"


def test_commit_takes_tokens_up_to_a_stop_token():
    session = make_session(stop_ids=(9, 5))
    assert session.commit((4, 5, 6)) == (4,)
    assert session.finish_reason == "stop"


def test_a_stop_token_in_the_prompt_stops_nothing():
    session = make_session(stop_ids=(2,))
    session.commit((4,))
    assert not session.finished


def test_the_digest_follows_the_text():
    session = make_session()
    assert session.base_digest() == session.base_digest() == digest((1, 2, 3))
    session.commit((4,))
    assert session.base_digest() == digest((1, 2, 3, 4))


def test_a_round_trip_is_from_the_verdict_that_is_answered():
    session = make_session()
    for length, at in [(4, 1.0), (5, 2.0), (6, 3.0)]:
        session.sent.append((length, at))
    session.acknowledge(5, 2.5)
    assert session.round_trip_s == session.client.round_trip_s == 0.5
    session.acknowledge(6, 5.0)
    assert session.round_trip_s == pytest.approx(0.5 + 0.2 * (2.0 - 0.5))
    session.acknowledge(6, 9.0)  # nothing new is answered
    assert session.round_trip_s == pytest.approx(0.8)


def test_a_draft_of_a_later_round_ends_the_hope_for_one_made_ahead_before():
    session = make_session()
    put(session, 2)
    text = session.tokens
    hoped = (*text, 17)
    ahead = Draft(session.session_id, 1, 3, len(hoped), digest(hoped), (30,), assumes=True)
    session.take_ahead(ahead, 0.0)
    assert session.ahead == ahead
    session.take_draft(Draft(session.session_id, 1, 4, len(text), digest(text), (17, 18)), 0.0)
    assert session.ahead is None
