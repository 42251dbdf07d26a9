"""The draft model alone, for texts that nobody verifies: what it writes, and that it moves with little memory."""

import pytest
from msgspec.structs import replace

from draft_node.core.actions import Propose, Request
from draft_node.model.drafter import Drafter
from goodspeed.app import generation
from goodspeed.wire.messages import LogitRules, Sampling
from tests.fakes import session_id
from tests.micro import VOCAB, make_checkpoint, make_runner

CHECKPOINT = make_checkpoint(1)
SAMPLINGS = [Sampling(temperature=0.0), Sampling(seed=3), Sampling(temperature=0.8, top_k=9, top_p=0.9, seed=4)]
PROMPT = (5, 6, 7, 8, 9)


def make_drafter(num_pages=256, **options):
    return Drafter(CHECKPOINT, make_runner(CHECKPOINT, num_pages), **options)


def make_request(number=1, **changes):
    return replace(Request(session_id(number), PROMPT, Sampling(seed=number), max_tokens=100), **changes)


def alone(request, num_tokens, **options):
    runner = make_runner(CHECKPOINT)
    return list(generation.generate(CHECKPOINT, runner, request.prompt, request.sampling, num_tokens, **options))


def step(drafter, texts):
    """Adds one token to each text that has room; returns those that got one."""
    for round_, (request, tokens) in enumerate(texts):
        if request.session_id not in drafter._jobs:
            drafter.add(Propose(request, 1, round_, tuple(tokens), 1, local=True))
    by_id = {request.session_id: tokens for request, tokens in texts}
    moved = []
    for proposed in drafter.step():
        assert proposed.proposal is None
        by_id[proposed.session_id] += proposed.tokens
        moved += [proposed.session_id] * len(proposed.tokens)
    return moved


@pytest.mark.thorough
@pytest.mark.parametrize("rules", [None, LogitRules(1.5, 0.5, 1.5, 0.01)], ids=["plain", "ruled"])
@pytest.mark.parametrize("verification", ["match", "ratio"])
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_it_writes_what_the_draft_model_writes_with_that_seed(verification, sampling, rules):
    """Under the ratio rule, too, and whatever makes a draft end early."""
    request = make_request(verification=verification, sampling=sampling, logit_rules=rules)
    drafter, tokens = make_drafter(), list(PROMPT)
    while len(tokens) < len(PROMPT) + 20:
        assert step(drafter, [(request, tokens)])
    assert tokens[len(PROMPT) :] == alone(request, 20, rules=rules)


def test_the_end_does_not_come_before_min_tokens():
    sampling = Sampling(seed=3)
    stop_ids = tuple(alone(make_request(sampling=sampling), 4))
    request = make_request(sampling=sampling, stop_ids=stop_ids, min_tokens=6)
    drafter, tokens = make_drafter(), list(PROMPT)
    for _ in range(7):
        assert step(drafter, [(request, tokens)])
    own = alone(request, 7, stop_ids=stop_ids, min_tokens=6)
    assert tokens[len(PROMPT) :][: len(own)] == own
    assert not set(tokens[len(PROMPT) :][:6]) & set(stop_ids)


def test_all_texts_are_in_every_step():
    drafter = make_drafter()
    texts = [(make_request(number), list(PROMPT)) for number in range(1, 9)]
    for _ in range(10):
        assert sorted(step(drafter, texts)) == [request.session_id for request, _ in texts]
    for request, tokens in texts:
        assert tokens[len(PROMPT) :] == alone(request, 10)


def test_where_memory_is_short_the_oldest_goes_on():
    """Pages for one text and a half: the younger ones get what it leaves, and all of it when it is done."""
    drafter = make_drafter(num_pages=9)
    page_size = drafter.runner.pool.page_size
    length = 6 * page_size
    texts = [(make_request(number), list(PROMPT)) for number in range(1, 5)]
    while texts:
        oldest, tokens = texts[0]
        while len(tokens) < length:
            assert oldest.session_id in step(drafter, texts)
        assert tokens[len(PROMPT) :] == alone(oldest, length - len(PROMPT))
        drafter.forget(oldest.session_id)
        texts.pop(0)


def test_the_longest_text_fits_into_memory_alone():
    drafter = make_drafter(num_pages=3)
    assert drafter.context_len == 3 * drafter.runner.pool.page_size < CHECKPOINT.context_len
    tokens, request = [number % VOCAB for number in range(drafter.context_len - 1)], make_request()
    assert step(drafter, [(request, tokens)])
    assert make_drafter(num_pages=4096).context_len == CHECKPOINT.context_len
