"""A generation while the verify node is away for too long: what the draft model writes alone, and the way back."""

import pytest
from msgspec.structs import replace

from draft_node.core.actions import Deliver, Fail, Finish, Propose, Proposed, Request, Send
from draft_node.core.local import GIVE_UP_S, RETRY_S, Terms
from draft_node.core.session import Session, State
from goodspeed.wire.messages import OpenSession, Sampling, Verdict

ID = b"0123456789abcdef"
REQUEST = Request(ID, (1, 2, 3), Sampling(seed=5), max_tokens=6, stop_ids=(0,), max_draft=7)
TERMS = Terms("it is away", context_len=100, target_context_len=200)


def verdict(base_len, tokens, may_draft=0, *, epoch=1):
    return Verdict(ID, epoch, base_len, tuple(tokens), 0, 0, may_draft)


def drawn(session, *tokens, **changes):
    """Returns what the draft model answers to the last thing that it was asked."""
    values = {"session_id": ID, "epoch": session.epoch, "round": session.asking.round, "tokens": tokens} | changes
    return Proposed(**values)


def offline(request=REQUEST, tokens=(7,)):
    """A session that has these of its tokens from the verify node, which went away then."""
    session = Session(request)
    session.connect(0.0)
    session.receive(verdict(3, tokens, may_draft=2), 1.0)
    session.disconnect()
    return session


def local(request=REQUEST, tokens=(7,)):
    session = offline(request, tokens)
    session.fall_back(TERMS, 10.0)
    assert session.state is State.LOCAL
    return session


def test_token_by_token_the_draft_model_writes_on():
    session = offline()
    [asked] = session.fall_back(TERMS, 10.0)
    assert asked == Propose(REQUEST, 1, session.asking.round, (1, 2, 3, 7), 1, local=True)
    delivered, asked = session.proposed(drawn(session, 8), 11.0)
    assert delivered == Deliver((8,), local=True)
    assert asked == Propose(REQUEST, 1, session.asking.round, (1, 2, 3, 7, 8), 1, local=True)
    assert session.committed == (7, 8)
    assert (session.statistics.num_tokens, session.statistics.num_local) == (2, 1)


def test_back_at_the_verify_node_all_of_it_is_committed_and_what_follows_is_verified():
    session = local()
    session.proposed(drawn(session, 8), 11.0)
    late = drawn(session, 9)
    opened, warm = session.connect(12.0)
    assert isinstance(opened.message, OpenSession)
    assert (opened.message.epoch, opened.message.committed) == (2, (7, 8))
    assert (warm.tokens, warm.length, warm.local) == ((1, 2, 3, 7, 8), 0, False)
    assert session.proposed(late, 12.0) == []
    delivered, _, asked = session.receive(verdict(5, [4], may_draft=2, epoch=2), 13.0)
    assert (delivered, asked.local) == (Deliver((4,)), False)
    [sent] = session.proposed(drawn(session, 5, 6), 14.0)
    assert (sent.message.base_len, sent.message.tokens) == (6, (5, 6))
    assert session.committed == (7, 8, 4)


# -- the end -----------------------------------------------------------------------------------------------------------


def test_the_target_s_context_ends_it_as_the_target_would():
    session = offline()
    session.fall_back(TERMS._replace(target_context_len=5), 10.0)
    assert session.proposed(drawn(session, 8), 11.0) == [Deliver((8,), local=True), Finish("length")]


def test_one_that_fills_the_draft_model_s_own_context_does_not_go_on():
    session = offline()
    session.fall_back(TERMS._replace(context_len=5), 10.0)
    delivered, failed = session.proposed(drawn(session, 8), 11.0)
    assert delivered == Deliver((8,), local=True)
    assert (failed.code, failed.what) == (
        "verify_away",
        "it is away; the draft model cannot continue alone: 5 tokens leave no room in the draft model's context of 5",
    )
    assert session.done


def test_where_the_target_has_not_been_seen_the_draft_model_s_context_is_all_there_is():
    session = offline()
    session.fall_back(Terms("it is away", 5, None), 10.0)
    assert session.proposed(drawn(session, 8), 11.0)[-1] == Finish("length")


def test_log_probabilities_are_the_target_s_own():
    session = offline(replace(REQUEST, num_logprobs=0))
    [failed] = session.fall_back(TERMS, 10.0)
    assert isinstance(failed, Fail)
    assert (failed.code, "log-probabilities" in failed.what) == ("verify_away", True)
    assert session.done


# -- a draft model that does not draw ----------------------------------------------------------------------------------


def test_a_draft_model_that_could_not_is_asked_again():
    session = local()
    assert session.proposed(drawn(session), 11.0) == []
    assert session.tick(11.0 + 0.9 * RETRY_S) == []
    [asked] = session.tick(11.0 + RETRY_S)
    assert asked == Propose(REQUEST, 1, session.asking.round, (1, 2, 3, 7), 1, local=True)
    assert session.proposed(drawn(session, 8), 12.0)[0] == Deliver((8,), local=True)


def test_one_that_never_draws_is_given_up():
    session, now, failed = local(), 10.0, None
    while failed is None:
        session.proposed(drawn(session), now)
        now = session.resend_at
        [action] = session.tick(now)
        failed = action if isinstance(action, Fail) else None
    assert now - 10.0 == pytest.approx(GIVE_UP_S, abs=2 * RETRY_S)
    assert failed.code == "verify_away"
    assert session.done


def test_ratio_sessions_too():
    session = local(replace(REQUEST, verification="ratio"))
    assert session.proposed(drawn(session, 8), 11.0)[0] == Deliver((8,), local=True)
    opened = session.connect(12.0)[0]
    assert isinstance(opened, Send)
    assert (opened.message.verification, opened.message.committed) == ("ratio", (7, 8))
