"""Logprobs and `min_tokens` through both nodes, on a line that loses, repeats and reorders messages.

Real microscopic models, a clock set by hand. What a user gets is held against the target alone: `generation.generate`
for the text, and plain transformers for the logprobs.
"""

import random
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from draft_node.core.generation import Generation
from goodspeed.drafting.drafter import Drafter
from goodspeed.drafting.proposing import Propose
from goodspeed.exact.logit_rules import TextRows, process
from goodspeed.exact.sampling import SamplingBatch, choose
from goodspeed.wire.fields import MIN_LOGPROB
from goodspeed.wire.messages import Sampling
from tests.fakes import session_id
from tests.micro import VOCAB, make_checkpoint, make_runner
from tests.together.line import Line
from tests.verify_node.model.desk import TARGET, alone, make_target
from verify_node.model.target import Target
from verify_node.scheduler.round import Entry, Round

PLAIN = make_checkpoint(1).model  # the target as transformers made it
SAMPLINGS = [Sampling(temperature=0.0), Sampling(temperature=0.8, top_k=9, top_p=0.9), Sampling()]
STOPS = tuple(range(0, VOCAB, 3))  # a third of all: without min_tokens every text would end at once


def raw_logprobs(text):
    """The logprobs of every token at every position after the first [len(text) - 1, vocab], by plain transformers."""
    with torch.inference_mode():
        return PLAIN(torch.tensor([text])).logits[0, :-1].float().log_softmax(-1)


def check_logprobs(prompt, tokens, logprobs, num_top):
    """Checks that each token has one entry: its own logprob, and the likeliest tokens with their ids."""
    assert len(logprobs) == len(tokens)
    rows = raw_logprobs([*prompt, *tokens])[len(prompt) - 1 :]
    for row, token, told in zip(rows, tokens, logprobs, strict=True):
        assert told.logprob == pytest.approx(float(row[token]), abs=1e-4)
        top = row.topk(num_top)
        assert told.top_logprobs == pytest.approx(top.values.tolist(), abs=1e-4)
        assert row[list(told.top_ids)].tolist() == pytest.approx(top.values.tolist(), abs=1e-4)
        assert len(set(told.top_ids)) == len(told.top_ids)


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
def test_logprobs_are_those_of_the_target_alone_whatever_is_lost(seed, num_pages):
    kinds: list[dict[str, Any]] = [
        {},
        {"verification": "ratio"},
        {"max_draft": 0},
        {"min_tokens": 9, "stop_ids": STOPS},
    ]
    requests = [make_request(number, **kinds[number % 4]) for number in range(12)]
    requests += [make_request(12, num_logprobs=None), make_request(13, num_logprobs=20, prompt_len=30)]
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


@pytest.mark.thorough
@pytest.mark.parametrize("min_tokens", [0, 1, 5, 24])
def test_min_tokens_is_exact_under_match_in_drafts_of_any_length(min_tokens):
    requests = [
        make_request(number, min_tokens=min_tokens, stop_ids=STOPS, max_draft=[0, 3, 64][number % 3])
        for number in range(9)
    ]
    line = Line(1).run(*requests)
    for user in line.users.values():
        request = user.session.request
        assert tuple(user.tokens) == alone(request)
        assert len(user.tokens) >= min_tokens
        assert not set(user.tokens) & set(STOPS)


@pytest.mark.parametrize("number", range(3))
def test_the_draft_model_does_not_guess_what_may_not_be(number):
    request = make_request(number, min_tokens=9, stop_ids=STOPS)
    drafter = Drafter(TARGET, make_runner(TARGET))
    drafter.add(Propose(request, 1, 0, request.prompt, 9))
    while not (done := drafter.step()):
        pass
    assert done[0].tokens == alone(request)[:9]


def test_under_ratio_nothing_stops_too_early_and_then_something_does():
    requests = [
        make_request(number, min_tokens=6, stop_ids=STOPS, verification="ratio", sampling=Sampling(seed=number))
        for number in range(12)
    ]
    line = Line(2).run(*requests)
    lengths = [len(user.tokens) for user in line.users.values()]
    assert min(lengths) >= 6
    assert sum(length < 24 for length in lengths) > 8
    assert all(user.reason == "stop" for user in line.users.values() if len(user.tokens) < 24)
    for user in line.users.values():
        check_logprobs(user.session.request.prompt, user.tokens, user.logprobs, user.session.request.num_logprobs)


# -- one round ---------------------------------------------------------------------------------------------------------


def entry(number, tokens, num_drafted=0, **changes):
    return Entry(session_id(number), 0, tuple(tokens), num_drafted, True, Sampling(temperature=0.0), **changes)


def run(*entries, checkpoint=TARGET):
    return Target(checkpoint, make_runner(checkpoint)).run(Round(1, entries)).outcomes


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
    planned = Round(1, (entry(1, (1, 2), stop_ids=(7,), may_stop_at=5), entry(2, (1, 2))))
    target.forward(planned)
    logits = torch.full((2, VOCAB), -torch.inf)
    logits[:, 7] = 1.0
    bad, good = target.verify(planned, logits)
    assert bad.failed
    assert good.tokens == (7,)


def test_banned_tokens_are_never_chosen():
    logits = torch.randn(4, VOCAB, generator=torch.Generator().manual_seed(1))
    banned = [STOPS, (), (VOCAB - 1, VOCAB, 1 << 30), STOPS]
    rows = process(logits, [TextRows(banned=[tokens]) for tokens in banned])
    for row, before, tokens in zip(rows, logits, banned, strict=True):
        inside = [token for token in tokens if token < VOCAB]
        assert row[inside].tolist() == [-torch.inf] * len(inside)
        assert int((row != before).sum()) == len(inside)
    assert process(logits, [TextRows([()] * 4)]) is logits
    for position in range(200):
        chosen = choose(rows, SamplingBatch.of([Sampling(seed=3)] * 4), torch.full((4,), position))
        assert int(chosen[0]) not in STOPS
