"""The draft model with a prefix cache: it proposes what it would without, and feeds less."""

import random
from typing import Any

import pytest
from msgspec.structs import replace

from draft_node.core.generation import Generation
from goodspeed.drafting.drafter import Drafter
from goodspeed.wire.messages import Sampling
from tests.drafting.test_drafter import fresh, make_request, nodes_of, record_passes, run, verdict, wanted
from tests.fakes import session_id
from tests.micro import VOCAB, make_checkpoint, make_engine

CHECKPOINT = make_checkpoint(1)
PROMPT = tuple(random.Random(4).randrange(VOCAB) for _ in range(30))


def make_drafter(num_pages: int = 256) -> Drafter:
    return Drafter(CHECKPOINT, make_engine(CHECKPOINT, num_pages, prefix_cache=True))


def request_of(number: int, salt: bytes = b"alice", **changes: Any) -> Generation:
    request: Generation = make_request(number, prompt=PROMPT, sampling=Sampling(seed=number), cache_salt=salt)
    return replace(request, **changes)


@pytest.mark.parametrize(("salt", "num_fed"), [(b"alice", 2), (b"bob", 30), (b"", 30)])
def test_the_same_users_prompt_is_not_fed_again(monkeypatch: pytest.MonkeyPatch, salt: bytes, num_fed: int) -> None:
    drafter = make_drafter()
    run(drafter, wanted(request_of(1), PROMPT, 1))
    drafter.forget(session_id(1))
    passes = record_passes(drafter, monkeypatch)
    run(drafter, wanted(request_of(2, salt), PROMPT, 1))
    assert sum(len(chunk.tokens) for chunks in passes for chunk in chunks) == num_fed
    assert (drafter.caches.num_looked_up, drafter.caches.num_found) == (60, 30 - num_fed)


@pytest.mark.parametrize(("salt", "num_kept"), [(b"alice", 7), (b"", 0)])
def test_what_nobody_can_find_any_more_is_not_kept(salt: bytes, num_kept: int) -> None:
    drafter = make_drafter()
    run(drafter, wanted(request_of(1, salt), PROMPT, 1))
    drafter.forget(session_id(1))
    assert drafter.engine.pool.num_unused == num_kept
    assert drafter.engine.pool.num_free == 256


def test_prompts_that_come_at_once_are_fed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("goodspeed.drafting.caches.PREFILL_CHUNK", 16)
    drafter = make_drafter()
    passes = record_passes(drafter, monkeypatch)
    proposes = [wanted(request_of(number), PROMPT, 1) for number in range(1, 6)]
    for propose, proposed in zip(proposes, run(drafter, *proposes), strict=True):
        assert proposed.tokens == fresh(propose)
    assert sum(len(chunk.tokens) for chunks in passes for chunk in chunks) == 30 + 4 * 2
    assert len(passes[0]) == 1


def test_drafted_tokens_are_not_kept() -> None:
    """The chain that the model drafts is longer than a page; only the text below it is found."""
    drafter = make_drafter()
    request = request_of(1)
    [proposed] = run(drafter, wanted(request, PROMPT, 9))
    run(drafter, replace(wanted(request, PROMPT, 9, 2), tree=nodes_of(proposed)))
    text = (*PROMPT, *proposed.tokens, 1)
    assert drafter.engine.pool.find(session_id(9), b"salt\0alice", text).num_tokens == 28
    run(drafter, wanted(request, text, 1, 3))
    assert drafter.engine.pool.find(session_id(9), b"salt\0alice", (*text, 1)).num_tokens == 40


@pytest.mark.thorough
@pytest.mark.parametrize("num_pages", [256, 28])
def test_whatever_is_shared_it_proposes_what_a_fresh_one_would(num_pages: int) -> None:
    """Texts that begin alike, come and go, and are rewound anywhere, also into pages that others have."""
    rng = random.Random(num_pages)
    drafter = make_drafter(num_pages)
    texts: dict[int, list[int]] = {}
    for number in range(60):
        if len(texts) < 3:
            texts[number + 1] = [*PROMPT[: rng.randint(1, 30)], rng.randrange(4)]
        if rng.random() < 0.2:
            gone = rng.choice(sorted(texts))
            drafter.forget(session_id(gone))
            del texts[gone]
            continue
        chosen = rng.sample(sorted(texts), min(len(texts), 2))
        proposes = [wanted(request_of(i, rng.choice([b"alice", b"bob"])), texts[i], 3, number) for i in chosen]
        for i, propose, proposed in zip(chosen, proposes, run(drafter, *proposes), strict=True):
            assert proposed.tokens == fresh(propose)
            texts[i] = verdict(rng, texts[i], proposed.tokens)
            if rng.random() < 0.2 or len(texts[i]) > 60:
                del texts[i][rng.randint(1, len(texts[i]) - 1) :]
    assert drafter.caches.num_found > 0
