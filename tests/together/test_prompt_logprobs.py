"""Logprobs of prompts through both nodes, on a line that loses, repeats and reorders messages.

Real microscopic models, a clock set by hand. What a user is told is held against plain transformers.
"""

from typing import Any

import pytest
import torch
from msgspec.structs import replace

from draft_node.core.session import Session
from goodspeed.wire.fields import MAX_PROMPT_LOGPROBS
from goodspeed.wire.messages import Ack, Close, Sampling, Verdict
from tests.fakes import make_open, make_welcome, session_id
from tests.together.line import Line
from tests.together.test_logprobs import PLAIN, check_logprobs, make_request
from tests.verify_node.model.desk import RealDesk, alone, make_target
from verify_node.scheduler import pack as packing
from verify_node.scheduler.round import Entry, PromptRows, Round
from verify_node.session.checks import MAX_KEPT


def check_prompt(prompt, told, num_top):
    check_logprobs(prompt[:1], prompt[1:], told, num_top)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("num_pages", [256, 36], ids=["roomy", "preempted"])
def test_prompts_are_told_once_and_rightly_whatever_is_lost(seed, num_pages, monkeypatch):
    monkeypatch.setattr(packing, "MAX_PROMPT_ROWS", 7)  # prompts of 30 and more tokens take many rounds
    requests = [
        make_request(number, prompt_len=1 + 9 * (number % 6), num_prompt_logprobs=number % 4) for number in range(11)
    ]
    requests.append(make_request(11, prompt_len=50))
    line = Line(seed, num_pages=num_pages).run(*requests)
    assert line.num_reopened > 0
    assert (line.num_preempted > 0) == (num_pages == 36)
    for user in line.users.values():
        request = user.session.request
        assert user.reason is not None
        assert tuple(user.tokens) == alone(request)
        if request.num_prompt_logprobs is None:
            assert user.prompts == []
        else:
            [told] = user.prompts
            check_prompt(request.prompt, told, request.num_prompt_logprobs)
        if request.num_logprobs is not None:
            check_logprobs(request.prompt, user.tokens, user.logprobs, request.num_logprobs)


def test_once_they_are_there_they_are_not_asked_for_again():
    session = Session(make_request(1, num_prompt_logprobs=0, num_logprobs=None))
    [opened, *_] = session.connect(0.0, make_welcome())
    assert opened.message.num_prompt_logprobs == 0
    session.receive(Verdict(session.request.session_id, 1, 4, (5,), 0, 0, prompt_logprobs=()), 0.1)
    session.disconnect()
    [again, *_] = session.connect(0.2, make_welcome())
    assert again.message.num_prompt_logprobs is None


# -- the verify node ---------------------------------------------------------------------------------------------------


def a_node():
    desk = RealDesk(make_target(num_pages=64, prefix_cache=True), max_round_tokens=32)
    desk.hello()
    return desk


def say(desk, message):
    return desk.up("a", message)


def rounds(desk):
    """What the first round says in which anything is said."""
    return next(filter(None, (desk.round() for _ in range(99))))


def opening(number=1, length=40, **changes):
    prompt = make_request(number, prompt_len=length).prompt
    options: dict[str, Any] = {"num_prompt_logprobs": 1, "sampling": Sampling(temperature=0.0), "max_draft": 0}
    return make_open(number, **({"prompt": prompt} | options | changes))


def test_what_is_told_is_told_again_until_it_is_acknowledged():
    node, opened = a_node(), opening()
    say(node, opened)
    [first] = rounds(node)
    check_prompt(opened.prompt, first.prompt_logprobs, 1)
    [second] = node.round()
    assert second.prompt_logprobs is None
    [repeated] = say(node, Ack(opened.session_id, opened.epoch, len(opened.prompt)))
    assert repeated.prompt_logprobs == first.prompt_logprobs
    assert repeated.tokens == first.tokens + second.tokens
    assert say(node, Ack(opened.session_id, opened.epoch, len(opened.prompt) + 1)) == []
    [rest] = say(node, Ack(opened.session_id, opened.epoch, len(opened.prompt) + 1))
    assert rest.prompt_logprobs is None


@pytest.mark.parametrize("in_flight", [False, True])
def test_a_prompt_that_is_opened_again_while_it_is_read_is_told_whole(in_flight):
    node, opened = a_node(), opening()
    say(node, opened)
    again = replace(opened, epoch=opened.epoch + 1)
    planned = node.plan()
    if in_flight:
        say(node, again)
    node.finish(planned)
    say(node, again)
    [told] = rounds(node)
    assert told.epoch == again.epoch
    check_prompt(opened.prompt, told.prompt_logprobs, 1)


def test_a_prompt_that_is_opened_again_once_it_is_told_is_read_again():
    """Else a message would make the node send all that it has read, as often as it comes."""
    node, opened = a_node(), opening()
    say(node, opened)
    [first] = rounds(node)
    say(node, replace(opened, epoch=opened.epoch + 1))
    assert node.core.sessions[opened.session_id].prompt_logprobs == []
    assert node.round() == [], "a chunk of the prompt"
    [again] = rounds(node)
    assert again.prompt_logprobs == first.prompt_logprobs


def test_a_prompt_that_is_kept_is_read_anew():
    """Another session of the same salt finds what the first has read; one that wants its logprobs reads it all."""
    node, salt = a_node(), b"salt" * 4
    say(node, opening(1, num_prompt_logprobs=None, cache_salt=salt))
    rounds(node)
    prompt = opening(1).prompt
    say(node, opening(2, num_prompt_logprobs=None, cache_salt=salt, prompt=prompt))
    [_, found] = rounds(node)
    assert found.num_cached > 0
    say(node, opening(3, cache_salt=salt, prompt=prompt))
    verdicts = [one for _ in range(9) for one in node.round() if one.session_id == session_id(3)]
    told = next(one for one in verdicts if one.prompt_logprobs is not None)
    assert told.num_cached == 0
    check_prompt(prompt, told.prompt_logprobs, 1)


def test_more_than_can_be_told_is_refused_by_name():
    node = a_node()
    node.core.register.welcome = replace(node.core.welcome, context_len=MAX_PROMPT_LOGPROBS)
    [refusal] = say(node, opening(length=MAX_PROMPT_LOGPROBS // 21 + 1, num_prompt_logprobs=20))
    assert (refusal.code, refusal.what.split()[0]) == ("unsupported", str(21 * (MAX_PROMPT_LOGPROBS // 21 + 1)))


def test_what_is_acknowledged_is_kept_nowhere():
    node, opened = a_node(), opening(max_tokens=1)
    say(node, opened)
    [told] = rounds(node)
    assert told.prompt_logprobs
    say(node, Ack(opened.session_id, opened.epoch, len(opened.prompt) + 1))
    session = node.core.sessions[opened.session_id]
    assert session.prompt_logprobs is session.last_verdict.prompt_logprobs is None


def test_what_one_client_waits_for_is_bounded(monkeypatch):
    monkeypatch.setattr("verify_node.session.checks.MAX_KEPT", 200)
    node = a_node()
    assert say(node, opening(1)) == say(node, opening(2)) == []  # 80 each
    [refusal] = say(node, opening(3))
    assert refusal.code == "too_many_prompt_logprobs"
    say(node, Close(session_id(1), 1))
    assert say(node, opening(3)) == []
    assert MAX_KEPT == 4 * MAX_PROMPT_LOGPROBS


# -- one round ---------------------------------------------------------------------------------------------------------


def test_a_chunk_is_told_from_rows_of_its_own():
    """Two chunks, then the whole of another session: each has its own rows among those of the others."""
    text = tuple(make_request(1, prompt_len=12).prompt)
    target = make_target()
    greedy = Sampling(temperature=0.0)
    chunk = Entry(session_id(1), 0, text[:5], 0, False, greedy, prompt_rows=PromptRows(0, text[1:6], 1))
    rest = Entry(session_id(1), 5, text[5:], 0, True, greedy, prompt_rows=PromptRows(5, text[6:], 1), num_logprobs=1)
    other = Entry(session_id(2), 0, text, 0, True, greedy)
    assert [one.num_rows for one in (chunk, rest, other)] == [5, 7, 1]
    [first] = target.run(Round(1, (chunk,))).outcomes
    outcomes = {outcome.session_id: outcome for outcome in target.run(Round(2, (other, rest))).outcomes}
    check_prompt(text, first.prompt_logprobs + outcomes[session_id(1)].prompt_logprobs, 1)
    drawn = int(PLAIN(torch.tensor([text])).logits[0, -1].argmax())
    assert outcomes[session_id(1)].tokens == outcomes[session_id(2)].tokens == (drawn,)
    check_logprobs(text, (drawn,), outcomes[session_id(1)].logprobs, 1)


def test_a_prompt_whose_logits_are_not_numbers_ends_its_session_alone(monkeypatch):
    target = make_target()
    greedy = Sampling(temperature=0.0)
    bad = Entry(session_id(1), 0, (1, 2, 3), 0, False, greedy, prompt_rows=PromptRows(0, (2, 3, 4), 0))
    good = Entry(session_id(2), 0, (1, 2, 3), 0, True, greedy)
    planned = Round(1, (bad, good))
    logits = target.forward(planned).clone()
    logits[1] = torch.nan
    outcomes = {outcome.session_id: outcome for outcome in target.verify(planned, logits)}
    assert outcomes[session_id(1)].failed
    assert outcomes[session_id(2)].tokens
