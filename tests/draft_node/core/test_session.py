"""One generation at the draft node: every event in every state that matters."""

import dataclasses
from itertools import pairwise

import pytest
from msgspec.structs import fields, replace

from draft_node.core.actions import Deliver, Fail, Finish, Send
from draft_node.core.generation import Generation
from draft_node.core.session import MAX_REFUSALS, MAX_RESEND_S, RESEND_S, RetransmissionTimer, Session, State
from draft_node.core.text import Text
from experiments.simulation.settings import PAPER, Settings
from experiments.simulation.world import World
from goodspeed.drafting.proposing import Propose, Proposed
from goodspeed.slo.objectives import Objectives
from goodspeed.wire.generation import Constraint
from goodspeed.wire.messages import Ack, Close, Draft, LogitRules, OpenSession, Refusal, Sampling, Slo, Verdict
from tests.draft_node.core.scripted import ID, opened
from tests.fakes import make_welcome

REQUEST = Generation(ID, (1, 2, 3), Sampling(seed=5), max_tokens=20, stop_ids=(0,), verification="ratio", max_draft=7)
DRAFT = Draft(ID, 1, 4, (8, 9), complete=True, proposal=b"p")
CHAT = Objectives(0.5, 0.05, "chat")
TIMED = replace(REQUEST, slo=CHAT, asked_at=10.0)


def verdict(base_len, tokens, may_draft=0, *, epoch=1, finish_reason=None, verified=0, accepted=0, **changes):
    told = Verdict(ID, epoch, base_len, tuple(tokens), verified, accepted, may_draft, finish_reason, **changes)
    return told if not verified else replace(told, source="model")


def refusal(code, epoch=1):
    return Refusal(code, "what", "what to do", ID, epoch)


def proposed(session, tokens, **changes):
    return Proposed(ID, session.epoch, session.stream.round, tuple(tokens), **changes)


@pytest.fixture
def session():
    session = Session(REQUEST)
    session.connect(0.0, make_welcome())
    return session


@pytest.fixture
def running(session):
    """It has sent a draft of two tokens."""
    asked = Propose(REQUEST, 1, 1, (1, 2, 3, 7), 2, max_depth=2)
    assert session.receive(verdict(3, [7], may_draft=2), 1.0) == [Deliver((7,)), Send(Ack(ID, 1, 4)), asked]
    assert session.proposed(proposed(session, [8, 9], proposal=b"p")) == [Send(DRAFT)]
    assert session.state is State.RUNNING
    return session


# -- the way of a session ----------------------------------------------------------------------------------------------


def test_connect_opens_and_warms_the_draft_model():
    session = Session(REQUEST)
    opened, warm = session.connect(0.0, make_welcome())
    opening = OpenSession(ID, 1, (1, 2, 3), (), Sampling(seed=5), 20)
    assert opened == Send(replace(opening, stop_ids=(0,), verification="ratio", max_draft=7))
    assert warm == Propose(REQUEST, 1, 0, (1, 2, 3), 0)
    assert session.state is State.OPENING
    assert session.proposed(proposed(session, [])) == []  # warmed up


def test_all_that_the_wire_has_of_a_generation_is_copied():
    changes = {"min_tokens": 3, "drafter": "ngram", "otherwise": "refuse", "logit_rules": LogitRules(min_p=0.1)}
    changes |= {"constraint": Constraint("regex", "a"), "cache_salt": b"salt", "num_logprobs": 2}
    full = replace(REQUEST, num_prompt_logprobs=1, **changes)
    opening = Text(full).open(1, 0.0, num_hops=0)
    own = {field.name: field.default for field in fields(Generation)}
    shared = {field.name for field in fields(OpenSession)} & own.keys() - {"slo"}  # that gets the time since
    assert not [name for name in shared if getattr(full, name) == own[name]], "not given above"
    assert {name: getattr(opening, name) for name in shared} == {name: getattr(full, name) for name in shared}


def test_a_verdict_is_delivered_and_drafted_on(running):
    delivered, acknowledged, asked = running.receive(verdict(4, [8, 5], may_draft=3, verified=2, accepted=1), 3.0)
    assert (delivered, acknowledged) == (Deliver((8, 5)), Send(Ack(ID, 1, 6)))
    assert asked == Propose(REQUEST, 1, 2, (1, 2, 3, 7, 8, 5), 3, max_depth=3)
    assert running.text.committed == (7, 8, 5)
    assert running.statistics.draft_acceptance_rate == 0.5


@pytest.mark.parametrize("num_before", [0, 1])
def test_a_verify_node_that_exceeds_max_tokens_ends_the_text(running, num_before):
    most = running.receive(verdict(4 - num_before, [7] * num_before + [8] * 19), 2.0)
    assert [len(one.tokens) for one in most if isinstance(one, Deliver)] == [19]
    closed, failed = running.receive(verdict(23 - num_before, [8] * (num_before + 1)), 3.0)
    assert (closed, failed.code) == (Send(Close(ID, 1)), "failed")
    assert (running.done, len(running.text.committed)) == (True, 20)


# -- repeated, overlapping, lost ---------------------------------------------------------------------------------------


def test_what_a_verdict_repeats_is_neither_delivered_nor_counted_again(running):
    again = verdict(3, [7, 8, 5], verified=2, accepted=1)
    assert running.receive(again, 3.0)[0] == Deliver((8, 5))
    assert running.receive(again, 3.0) == []
    assert running.statistics.accepted == {"model": 1}


def test_a_gap_is_told_once_however_many_verdicts_are_behind_it(session):
    """A far line holds hundreds: each Ack would cost the whole rest again, and all of them look like a flood."""
    session.receive(verdict(3, [7]), 1.0)
    told = [session.receive(verdict(base_len, [9]), 1.0) for base_len in range(6, 200)]
    assert [len(actions) for actions in told] == [1] + [0] * 193
    assert session.tick(1.0 + RESEND_S) == [Send(Ack(ID, 1, 4))]
    session.receive(verdict(4, [8, 8]), 3.0)
    assert session.receive(verdict(8, [9]), 3.0) == [Send(Ack(ID, 1, 6))], "the next gap"
    session.disconnect()
    session.connect(4.0, make_welcome())
    assert session.receive(verdict(8, [9], epoch=2), 5.0) == [Send(Ack(ID, 2, 6))], "and one after a reopening"


def test_a_draft_is_repeated_byte_for_byte_and_ever_more_rarely(running):
    times = []
    for step in range(20, 400):
        if actions := running.tick(step / 10):
            times.append(step / 10)
            assert actions == [Send(Ack(ID, 1, 4)), Send(DRAFT)]
    gaps = [after - before for before, after in pairwise(times)]
    assert gaps == pytest.approx([2.0, 4.0, 8.0, 8.0, 8.0])
    assert max(gaps) <= MAX_RESEND_S


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", ["unknown_session", "wrong_base", "too_long", "hello_first"])
def test_what_can_be_mended_is_opened_again(running, code):
    opened, _ = running.receive(refusal(code), 3.0)
    assert (opened.message.epoch, opened.message.committed) == (2, (7,))


@pytest.mark.parametrize("code", ["stale_epoch", "proposal"])
def test_what_a_verdict_follows_is_ignored(running, code):
    assert running.receive(refusal(code), 3.0) == []
    assert running.state is State.RUNNING


@pytest.mark.parametrize("code", ["prompt", "vocabulary", "unsupported", "not_owner", "not_promised"])
def test_what_cannot_be_mended_fails(running, code):
    closed, failed = running.receive(refusal(code), 3.0)
    assert closed == Send(Close(ID, 1))
    assert (type(failed), failed.code, failed.what) == (Fail, code, "what; what to do")
    assert running.done


@pytest.mark.parametrize("code", ["too_many_sessions", "too_many_prompt_logprobs", "draining"])
def test_what_will_pass_is_waited_for_until_it_is_opened_again(session, code):
    for attempt in range(1, 100):
        assert session.receive(refusal(code, session.epoch), float(attempt)) == []
        assert session.state is State.OFFLINE
        assert session.tick(attempt + 1000.0) == []
        opened, _ = session.connect(attempt + 0.5, make_welcome())
        assert opened.message.epoch == attempt + 1


def test_refusals_in_a_row_are_followed_by_ever_longer_waits_and_too_many_end_it(session):
    [opened, _] = session.receive(refusal("unknown_session", session.epoch), 1.0)
    assert isinstance(opened.message, OpenSession)
    for number in range(1, MAX_REFUSALS):
        [closed] = session.receive(refusal("unknown_session", session.epoch), 1.0)
        assert closed.message == Close(session.request.session_id, session.epoch)
        assert session.state is State.OFFLINE
        assert session.opens_at == pytest.approx(1.0 + min(0.1 * 2 ** (number - 1), 1.0))
        session.connect(session.opens_at, make_welcome())
    assert [type(action) for action in session.receive(refusal("unknown_session", session.epoch), 1.0)] == [Send, Fail]


def test_a_token_in_between_forgives_refusals():
    session = Session(replace(REQUEST, max_tokens=3 * MAX_REFUSALS + 1))
    session.connect(0.0, make_welcome())
    for step in range(3 * MAX_REFUSALS):
        session.receive(refusal("unknown_session", session.epoch), 1.0)
        session.receive(verdict(3 + step, [7], epoch=session.epoch), 1.0)
    assert not session.done


@pytest.mark.parametrize("num_cached", [0, 2])
def test_the_first_verdict_tells_what_was_in_memory(session, num_cached):
    session.receive(verdict(3, [7], num_cached=num_cached), 1.0)
    session.receive(verdict(4, [8], num_cached=3), 2.0)
    session.disconnect()
    session.connect(3.0, make_welcome())
    session.receive(verdict(5, [9], epoch=2, num_cached=5), 4.0)
    assert session.tokens == [1, 2, 3, 7, 8, 9]
    assert session.statistics.num_cached == num_cached


@pytest.mark.parametrize("is_begun", [False, True])
def test_where_its_constraint_is_not_served_a_text_ends_by_name_and_is_never_opened_without(is_begun):
    session = Session(replace(REQUEST, constraint=Constraint("regex", "[ab]+")))
    if is_begun:
        opened(session, 1.0, target_fingerprint="t")
        session.receive(verdict(3, [7]), 2.0)
        session.disconnect()
    [failed] = session.connect(3.0, make_welcome(target_fingerprint="t", constraints=False))
    assert (type(failed), failed.code, session.done) == (Fail, "unsupported", True)
    assert "structured output" in failed.what


# -- another target ----------------------------------------------------------------------------------------------------


def test_a_text_is_not_continued_by_another_target():
    session = Session(REQUEST)
    session.connect(0.0, make_welcome(target_fingerprint="one"))
    session.receive(verdict(3, [7], may_draft=2), 1.0)
    session.disconnect()
    another = make_welcome(target_fingerprint="another", context_len=4)
    [failed] = session.connect(2.0, another)  # a shorter context does not seem to finish it
    assert (failed.code, session.state, session.target) == ("target_changed", State.DONE, "one")
    assert session.text.committed == (7,)
    assert session.connect(3.0, make_welcome(target_fingerprint="one")) == session.cancel() == []


def test_a_text_begins_only_with_the_target_that_it_was_asked_for():
    """Its end-of-sequence ids and its sampling are that target's."""
    session = Session(replace(REQUEST, target="one"))
    [failed] = session.connect(0.0, make_welcome(target_fingerprint="another"))
    assert (failed.code, session.state) == ("target_changed", State.DONE)


def test_what_fills_the_context_does_not_go_on():
    [failed] = Session(REQUEST).connect(0.0, make_welcome(context_len=3))
    assert failed.code == "prompt"
    assert "3 tokens leave no room" in failed.what
    alone = Session(REQUEST)
    alone.tokens.append(9)  # another verify node had a longer context
    assert alone.connect(0.0, make_welcome(context_len=4)) == [Finish("length")]


# -- service levels ----------------------------------------------------------------------------------------------------


def test_the_verify_node_is_told_them_and_how_long_the_text_has_waited():
    assert opened(Session(TIMED), 10.25).slo == Slo(CHAT, 0.25)


def test_opened_again_it_tells_for_how_long_the_first_token_has_been_there():
    session = Session(TIMED)
    opened(session, 10.0)
    session.receive(verdict(3, [7]), 11.0)
    session.receive(verdict(4, [8]), 11.5)
    session.disconnect()
    again = opened(session, 13.0)
    assert (again.slo, again.committed) == (Slo(CHAT, 3.0, since_first_s=2.0), (7, 8))


def test_where_nothing_is_ever_promised_a_text_that_insists_ends_at_once_unless_it_is_under_way():
    session = Session(replace(TIMED, otherwise="refuse"))
    [failed] = session.connect(10.0, make_welcome(promises=False))
    assert (type(failed), failed.code, session.done) == (Fail, "not_promised", True)
    session = Session(replace(TIMED, otherwise="refuse"))
    opened(session, 10.0)
    session.receive(verdict(3, [7]), 11.0)
    session.disconnect()
    assert opened(session, 12.0, promises=False).committed == (7,)


def test_it_knows_whether_it_is_promised_until_it_is_opened_again():
    session = Session(TIMED)
    opened(session, 10.0)
    assert session.promised is None
    session.receive(verdict(3, [7], epoch=2, promised=True), 10.1)
    assert session.promised is None, "of another epoch"
    session.receive(verdict(3, [7], promised=False), 10.1)
    assert session.promised is False
    session.receive(verdict(4, [7], promised=True), 10.2)
    assert session.promised is True
    session.receive(verdict(3, [7], promised=False), 10.3)
    assert session.promised is True, "a verdict that comes again"
    session.disconnect()
    opened(session, 11.0)
    assert session.promised is None, "another verify node may keep no book of it"


# -- a message is repeated not before its answer can be there, and less and less often ---------------------------------


def test_the_answer_to_a_word_that_was_repeated_tells_nothing_and_the_silence_stays():
    timer = RetransmissionTimer()
    timer.said(0.0, is_timed=True)
    timer.again()
    timer.again()
    timer.answered(5.0)
    assert timer.answer_s == 0.0
    assert timer.said(5.0, is_timed=True) == 4.0
    timer.answered(5.5)
    assert timer.said(6.0, is_timed=True) == RESEND_S


def test_after_a_new_beginning_only_what_was_measured_counts():
    timer = RetransmissionTimer()
    timer.said(0.0, is_timed=True)
    timer.answered(1.5)
    timer.said(2.0, is_timed=True)
    timer.again()
    timer.begin()
    assert timer.silence_s == pytest.approx(3.0)


def test_copies_do_not_fill_a_narrow_line():
    """8,000 bytes a draft, 4,000 a second: after 1 s of silence each was repeated, and all took twice as long."""
    narrow = Settings(num_clients=2, num_sessions=4, num_at_once=1, drafted_bytes=500.0, bytes_per_s=(4000.0,))
    world = World(1, dataclasses.replace(narrow, min_tokens=40, stops=0.0, policy="fixed", budget=16, **PAPER))
    world.run(150.0)
    sessions = [generation.session for draft in world.drafts for generation in draft.done]
    num_rounds = sum(session.statistics.num_rounds for session in sessions)
    assert sum(session.statistics.num_resends for session in sessions) < num_rounds / 2
