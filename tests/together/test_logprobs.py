"""Logprobs and `min_tokens` through both nodes, on a line that loses, repeats and reorders messages.

Real microscopic models, a clock set by hand. What a user gets is held against the target alone: `reference.generate`
for the text, and plain transformers for the logprobs.
"""

import random
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from draft_node.core.generation import Generation
from draft_node.core.session import Session
from goodspeed.drafting.drafter import Drafter
from goodspeed.drafting.proposing import Propose
from goodspeed.wire.fields import MAX_PROMPT_LOGPROBS, MIN_LOGPROB
from goodspeed.wire.messages import Ack, Close, Sampling, Verdict
from tests.fakes import make_entry, make_open, make_welcome, session_id
from tests.micro import VOCAB, make_checkpoint, make_engine
from tests.together.line import Line
from tests.verify_node.model.desk import TARGET, RealDesk, alone, make_target
from verify_node.core.refusals import MAX_KEPT
from verify_node.model.target import Target
from verify_node.scheduler import pack as packing
from verify_node.scheduler.round import PromptRows, Round

PLAIN = make_checkpoint(1).model  # the target as transformers made it
SAMPLINGS = [Sampling(temperature=0.0), Sampling(temperature=0.8, top_k=9, top_p=0.9), Sampling()]
STOPS = tuple(range(0, VOCAB, 3))  # a third of all: without min_tokens every text would end at once


def check_logprobs(prompt, tokens, logprobs, num_top):
    """Checks that each token has one entry: its own logprob, and the likeliest tokens with their ids."""
    assert len(logprobs) == len(tokens)
    with torch.inference_mode():
        rows = PLAIN(torch.tensor([[*prompt, *tokens]])).logits[0, len(prompt) - 1 : -1].float().log_softmax(-1)
    for row, token, told in zip(rows, tokens, logprobs, strict=True):
        assert told.logprob == pytest.approx(float(row[token]), abs=1e-4)
        top = row.topk(num_top)
        assert told.top_logprobs == pytest.approx(top.values.tolist(), abs=1e-4)
        assert row[list(told.top_ids)].tolist() == pytest.approx(top.values.tolist(), abs=1e-4)
        assert len(set(told.top_ids)) == len(told.top_ids)


def check_prompt(prompt, told, num_top):
    check_logprobs(prompt[:1], prompt[1:], told, num_top)


def make_request(number, *, prompt_len=4, **changes):
    rng = random.Random(number)
    sampling = SAMPLINGS[number % len(SAMPLINGS)]
    values = {
        "session_id": session_id(number),
        "prompt": tuple(rng.randrange(VOCAB) for _ in range(prompt_len)),
        "sampling": replace(sampling, seed=number),
        "max_tokens": 24,
        "num_logprobs": number % 4,
    }
    return Generation(**(values | changes))


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("num_pages", [256, 36], ids=["roomy", "preempted"])
def test_logprobs_are_those_of_the_target_alone_whatever_is_lost(seed, num_pages, monkeypatch):
    """Those of prompts are told once; prompts of 30 and more tokens take many rounds."""
    monkeypatch.setattr(packing, "MAX_PROMPT_ROWS", 7)
    ending: dict[str, Any] = {"min_tokens": 9, "stop_ids": STOPS}
    kinds: list[dict[str, Any]] = [{}, {"verification": "ratio"}, {"max_draft": 0}, ending]
    requests = [make_request(number, **kinds[number % 4]) for number in range(12)]
    requests += [make_request(12, num_logprobs=None), make_request(13, num_logprobs=20, prompt_len=30)]
    for number in range(8):
        requests.append(make_request(14 + number, prompt_len=1 + 9 * (number % 6), num_prompt_logprobs=number % 4))
    line = Line(seed, num_pages=num_pages).run(*requests)
    assert line.num_reopened > 0
    assert any(0 < got.num_accepted < got.num_drafted for got in (u.session.statistics for u in line.users.values()))
    assert line.num_repeated > 0
    assert (line.num_preempted > 0) == (num_pages == 36)
    for user in line.users.values():
        request = user.session.request
        assert user.reason is not None
        if request.verification == "match":
            assert tuple(user.tokens) == alone(request)
        if request.num_logprobs is None:
            assert user.logprobs == []
        else:
            check_logprobs(request.prompt, user.tokens, user.logprobs, request.num_logprobs)
        if request.num_prompt_logprobs is None:
            assert user.prompts == []
        else:
            [told] = user.prompts
            check_prompt(request.prompt, told, request.num_prompt_logprobs)


@pytest.mark.thorough
@pytest.mark.parametrize("min_tokens", [0, 1, 5, 24])
def test_min_tokens_is_exact_under_match_in_drafts_of_any_length(min_tokens):
    options: dict[str, Any] = {"min_tokens": min_tokens, "stop_ids": STOPS}
    line = Line(1).run(*(make_request(number, **options, max_draft=[0, 3, 64][number % 3]) for number in range(9)))
    for user in line.users.values():
        request = user.session.request
        assert tuple(user.tokens) == alone(request)
        assert len(user.tokens) >= min_tokens
        assert not set(user.tokens) & set(STOPS)


@pytest.mark.parametrize("number", range(3))
def test_the_draft_model_does_not_guess_what_may_not_be(number):
    request = make_request(number, min_tokens=9, stop_ids=STOPS)
    drafter = Drafter(TARGET, make_engine(TARGET))
    drafter.add(Propose(request, 1, 0, request.prompt, 9))
    while not (done := drafter.step()):
        pass
    assert done[0].tokens == alone(request)[:9]


def test_under_ratio_nothing_stops_too_early_and_then_something_does():
    options: dict[str, Any] = {"min_tokens": 6, "stop_ids": STOPS, "verification": "ratio"}
    line = Line(2).run(*(make_request(number, **options, sampling=Sampling(seed=number)) for number in range(12)))
    lengths = [len(user.tokens) for user in line.users.values()]
    assert min(lengths) >= 6
    assert sum(length < 24 for length in lengths) > 8
    assert all(user.reason == "stop" for user in line.users.values() if len(user.tokens) < 24)
    for user in line.users.values():
        check_logprobs(user.session.request.prompt, user.tokens, user.logprobs, user.session.request.num_logprobs)


def entry(number, tokens, num_drafted=0, **changes):
    return make_entry(number, 0, tokens, num_drafted, sampling=Sampling(temperature=0.0), **changes)


def run(*entries, checkpoint=TARGET):
    return Target(checkpoint, make_engine(checkpoint)).run(Round(1, entries)).outcomes


def test_padding_beyond_the_tokenizer_has_no_probability():
    narrow = make_checkpoint(1, num_tokens=10)
    [outcome] = run(entry(1, (1, 2), num_logprobs=20), checkpoint=narrow)
    [told] = outcome.logprobs
    assert sorted(told.top_ids) == list(range(10))
    assert sum(map(torch.exp, map(torch.tensor, told.top_logprobs))) == pytest.approx(1.0, abs=1e-5)
    assert told.top_logprobs[0] == told.logprob


def test_what_is_impossible_is_told_as_a_finite_number(monkeypatch):
    target = make_target()
    planned = Round(1, (entry(1, (1, 2), num_logprobs=20),))
    logits = target.forward(planned).clone()
    logits[:, 5:] = -torch.inf
    [outcome] = target.verify(planned, logits)
    assert outcome.logprobs[0].top_logprobs[5:] == (MIN_LOGPROB,) * 15


def test_where_nothing_is_left_to_draw_the_session_is_given_up():
    target = make_target()
    planned = Round(1, (entry(1, (1, 2), stop_ids=(7,), min_tokens=2), entry(2, (1, 2))))
    target.forward(planned)
    logits = torch.full((2, VOCAB), -torch.inf)
    logits[:, 7] = 1.0
    bad, good = target.verify(planned, logits)
    assert bad.failed
    assert good.tokens == (7,)


def test_once_they_are_there_they_are_not_asked_for_again():
    session = Session(make_request(1, num_prompt_logprobs=0, num_logprobs=None))
    [opened, *_] = session.connect(0.0, make_welcome())
    assert opened.message.num_prompt_logprobs == 0
    session.receive(Verdict(session.request.session_id, 1, 4, (5,), 0, 0, prompt_logprobs=()), 0.1)
    session.disconnect()
    [again, *_] = session.connect(0.2, make_welcome())
    assert again.message.num_prompt_logprobs is None


def a_node():
    desk = RealDesk(make_target(num_pages=64, prefix_cache=True), max_round_tokens=32)
    desk.hello()
    return desk


def rounds(desk):
    """Returns what the first round says that says anything."""
    return next(filter(None, (desk.round() for _ in range(99))))


def told_once(**changes):
    """A node, a session that it told the logprobs of its prompt, and the verdict that did."""
    node, opened = a_node(), opening(**changes)
    node.up("a", opened)
    [first] = rounds(node)
    check_prompt(opened.prompt, first.prompt_logprobs, 1)
    return node, opened, first


def opening(number=1, length=40, **changes):
    prompt = make_request(number, prompt_len=length).prompt
    options: dict[str, Any] = {"num_prompt_logprobs": 1, "sampling": Sampling(temperature=0.0), "max_draft": 0}
    return make_open(number, **({"prompt": prompt} | options | changes))


def test_what_is_told_is_told_again_until_it_is_acknowledged():
    node, opened, first = told_once()
    [second] = node.round()
    assert second.prompt_logprobs is None
    [repeated] = node.up("a", Ack(opened.session_id, opened.epoch, len(opened.prompt)))
    assert repeated.prompt_logprobs == first.prompt_logprobs
    assert repeated.tokens == first.tokens + second.tokens
    assert node.up("a", Ack(opened.session_id, opened.epoch, len(opened.prompt) + 1)) == []
    [rest] = node.up("a", Ack(opened.session_id, opened.epoch, len(opened.prompt) + 1))
    assert rest.prompt_logprobs is None


@pytest.mark.parametrize("in_flight", [False, True])
def test_a_prompt_that_is_opened_again_while_it_is_read_is_told_whole(in_flight):
    node, opened = a_node(), opening()
    node.up("a", opened)
    again = replace(opened, epoch=opened.epoch + 1)
    planned = node.plan()
    if in_flight:
        node.up("a", again)
    node.finish(planned)
    node.up("a", again)
    [told] = rounds(node)
    assert told.epoch == again.epoch
    check_prompt(opened.prompt, told.prompt_logprobs, 1)


def test_a_prompt_that_is_opened_again_once_it_is_told_is_read_again():
    """Else a message would make the node send all that it has read, as often as it comes."""
    node, opened, first = told_once()
    node.up("a", replace(opened, epoch=opened.epoch + 1))
    assert node.core.sessions[opened.session_id].prompt_logprobs == []
    assert node.round() == [], "a chunk of the prompt"
    [again] = rounds(node)
    assert again.prompt_logprobs == first.prompt_logprobs


def test_a_prompt_that_is_kept_is_read_anew():
    """Another session of the same salt finds what the first has read; one that wants its logprobs reads it all."""
    node, salt = a_node(), b"salt" * 4
    node.up("a", opening(1, num_prompt_logprobs=None, cache_salt=salt))
    rounds(node)
    prompt = opening(1).prompt
    node.up("a", opening(2, num_prompt_logprobs=None, cache_salt=salt, prompt=prompt))
    [_, found] = rounds(node)
    assert found.num_cached > 0
    node.up("a", opening(3, cache_salt=salt, prompt=prompt))
    verdicts = [one for _ in range(9) for one in node.round() if one.session_id == session_id(3)]
    told = next(one for one in verdicts if one.prompt_logprobs is not None)
    assert told.num_cached == 0
    check_prompt(prompt, told.prompt_logprobs, 1)


def test_more_than_can_be_told_is_refused_by_name():
    node = a_node()
    node.core.register.welcome = replace(node.core.welcome, context_len=MAX_PROMPT_LOGPROBS)
    [refusal] = node.up("a", opening(length=MAX_PROMPT_LOGPROBS // 21 + 1, num_prompt_logprobs=20))
    assert (refusal.code, refusal.what.split()[0]) == ("unsupported", str(21 * (MAX_PROMPT_LOGPROBS // 21 + 1)))


def test_what_is_acknowledged_is_kept_nowhere():
    node, opened, _ = told_once(max_tokens=1)
    node.up("a", Ack(opened.session_id, opened.epoch, len(opened.prompt) + 1))
    session = node.core.sessions[opened.session_id]
    assert session.prompt_logprobs is session.last_verdict.prompt_logprobs is None


def test_what_one_client_waits_for_is_bounded(monkeypatch):
    monkeypatch.setattr("verify_node.core.refusals.MAX_KEPT", 200)
    node = a_node()
    assert node.up("a", opening(1)) == node.up("a", opening(2)) == []  # 80 each
    [refusal] = node.up("a", opening(3))
    assert refusal.code == "too_many_prompt_logprobs"
    node.up("a", Close(session_id(1), 1))
    assert node.up("a", opening(3)) == []
    assert MAX_KEPT == 4 * MAX_PROMPT_LOGPROBS


def test_a_chunk_is_told_from_rows_of_its_own():
    """Two chunks, then the whole of another session: each has its own rows among those of the others."""
    text = tuple(make_request(1, prompt_len=12).prompt)
    target = make_target()
    chunk = entry(1, text[:5], samples=False, prompt_rows=PromptRows(0, text[1:6], 1))
    rest = replace(entry(1, text[5:], prompt_rows=PromptRows(5, text[6:], 1), num_logprobs=1), start=5)
    other = entry(2, text)
    assert [one.num_rows for one in (chunk, rest, other)] == [5, 7, 1]
    [first] = target.run(Round(1, (chunk,))).outcomes
    outcomes = {outcome.session_id: outcome for outcome in target.run(Round(2, (other, rest))).outcomes}
    check_prompt(text, first.prompt_logprobs + outcomes[session_id(1)].prompt_logprobs, 1)
    drawn = int(PLAIN(torch.tensor([text])).logits[0, -1].argmax())
    assert outcomes[session_id(1)].tokens == outcomes[session_id(2)].tokens == (drawn,)
    check_logprobs(text, (drawn,), outcomes[session_id(1)].logprobs, 1)


def test_a_prompt_whose_logits_are_not_numbers_ends_its_session_alone(monkeypatch):
    target = make_target()
    bad = entry(1, (1, 2, 3), samples=False, prompt_rows=PromptRows(0, (2, 3, 4), 0))
    good = entry(2, (1, 2, 3))
    planned = Round(1, (bad, good))
    logits = target.forward(planned).clone()
    logits[1] = torch.nan
    outcomes = {outcome.session_id: outcome for outcome in target.verify(planned, logits)}
    assert outcomes[session_id(1)].failed
    assert outcomes[session_id(2)].tokens
