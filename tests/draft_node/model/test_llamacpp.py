"""Drafts with llama.cpp: what a draft model of our own would draft, and what becomes of a server that does not work."""

import asyncio
import dataclasses
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from draft_node.core.generation import Generation
from draft_node.model.drafting import Drafting
from draft_node.model.llamacpp import connecting, server
from draft_node.model.llamacpp import drafter as module
from draft_node.model.llamacpp.drafter import LlamaDrafter
from draft_node.model.llamacpp.server import Ask, Server
from goodspeed.drafting.confidence import AT_NO_CONFIDENCE
from goodspeed.drafting.drafter import Drafter
from goodspeed.drafting.proposing import Propose
from goodspeed.engine.tokenizing import tokenizer_folder
from goodspeed.engine.tokenizing.text import num_tokens
from goodspeed.engine.torch import checkpoints
from goodspeed.engine.torch.loading import start
from goodspeed.errors import CheckpointError, ConfigError, MalformedMessage, TransportError
from goodspeed.wire.generation import LogitRules, Sampling, TokenBias
from tests import gguf_files, llama_server
from tests.drafting.test_drafter import run

VOCABULARY = tokenizer_folder.load("tiny-target")
TEXT = tuple(VOCABULARY.tokenizer("Once upon a time there lived a hungry fox called Anni.")["input_ids"])
GREEDY = Sampling(temperature=0.0)
SAMPLINGS = [GREEDY, Sampling(seed=3), Sampling(temperature=0.7, top_k=20, seed=4), Sampling(top_p=0.9, seed=5)]
SPLIT = tuple(VOCABULARY.tokenizer("é" * 20)["input_ids"])
"""A text after which `tiny-draft-s` writes characters of two tokens."""
A, B, C, D = 10813, 243, 221, 28  # A to C are one emoji of SmolLM2


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    """A real one with two slots."""
    with llama_server.serving(gguf_files.made("tiny-draft-s"), 2, 4096) as url:
        found = connecting.at_url(url, {}, trusted_network=False)
        found.check(VOCABULARY)
        yield found
        found.close()


@pytest.fixture
def drafter(running: Server) -> LlamaDrafter:
    return LlamaDrafter(running, VOCABULARY.num_tokens)


def wanted(number: int = 1, length: int = 12, text: tuple[int, ...] = TEXT, **changes: Any) -> Propose:
    of_propose = {name: changes.pop(name) for name in ("wants_alternatives", "max_depth", "tree") if name in changes}
    request = replace(Generation(bytes([number]) * 16, TEXT, Sampling(seed=number), max_tokens=500), **changes)
    return Propose(request, 1, 1, text, length, **of_propose)


def tokens_of(drafter: LlamaDrafter, number: int = 1, **options: Any) -> tuple[int, ...]:
    """Returns what is drafted for `wanted` with these options."""
    found: tuple[int, ...] = run(drafter, wanted(number, **options))[0].tokens
    return found


load = cache(checkpoints.load)


def ours(*proposes: Propose) -> Any:
    """Returns what a draft model of our own proposes."""
    checkpoint = load("tiny-draft-s")
    return run(Drafter(checkpoint, start(checkpoint, num_pages=256), max_width=1), *proposes)


def record(drafter: LlamaDrafter) -> list[list[Ask]]:
    """The requests of each step from now on."""
    asked: list[list[Ask]] = []

    class Recorded:
        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        def complete(self, asks: list[Ask]) -> Any:
            asked.append(asks)
            return real.complete(asks)

    real, drafter.server = drafter.server, Recorded()  # type: ignore[assignment]
    return asked


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_it_drafts_what_the_model_in_torch_drafts(drafter: LlamaDrafter, sampling: Sampling) -> None:
    proposes = [wanted(number, 24, sampling=replace(sampling, seed=number)) for number in (1, 2)]
    for here, there in zip(run(drafter, *proposes), ours(*proposes), strict=True):
        assert here.tokens[:24] == there.tokens
        assert here.probabilities[:24] == pytest.approx(there.probabilities, abs=0.01)


@pytest.mark.parametrize("sampling", [SAMPLINGS[0], SAMPLINGS[2], Sampling(temperature=0.2, seed=6)])
def test_characters_of_several_tokens_are_drafted_like_others(drafter: LlamaDrafter, sampling: Sampling) -> None:
    asked = record(drafter)
    [here], [there] = run(drafter, propose := wanted(text=SPLIT, sampling=sampling)), ours(propose)
    assert here.tokens[:12] == there.tokens
    if sampling.temperature:
        assert any(ask.is_forced for [ask] in asked)
        assert here.probabilities[:12] == pytest.approx(there.probabilities, abs=0.01)
    else:
        untold = AT_NO_CONFIDENCE + (1.0 - AT_NO_CONFIDENCE) * module.UNTOLD
        assert here.probabilities[::2] == pytest.approx([untold] * 6)
        assert here.probabilities[1::2] == pytest.approx(there.probabilities[1::2], abs=0.01)
        assert [ask.num_tokens for [ask] in asked] == [12]


def test_a_rule_at_temperature_0_looks_at_the_likeliest_tokens_within_a_character(drafter: LlamaDrafter) -> None:
    likeliest = tokens_of(drafter, text=SPLIT, sampling=GREEDY)[0]
    without = LogitRules(logit_bias=(TokenBias(likeliest, -100.0),))
    propose = wanted(2, text=SPLIT, sampling=GREEDY, logit_rules=without)
    [here], [there] = run(drafter, propose), ours(propose)
    assert here.tokens[:12] == there.tokens
    assert likeliest not in here.tokens


def test_more_texts_than_slots_take_turns_and_share_nothing(drafter: LlamaDrafter) -> None:
    proposes = [wanted(number, 6) for number in range(1, 6)]
    asked = record(drafter)
    assert [each.tokens for each in run(drafter, *proposes)] == [each.tokens for each in ours(*proposes)]
    assert sum(ask.is_new for step in asked for ask in step) >= 5  # each begins in a slot of which nothing is used


def test_a_long_text_is_read_in_parts(drafter: LlamaDrafter) -> None:
    text = TEXT * 60
    asked = record(drafter)
    [proposed] = run(drafter, wanted(length=0, text=text))
    lengths = [len(ask.prompt) for [ask] in asked]
    assert max(after - before for before, after in zip([0, *lengths], lengths, strict=False)) == module.PREFILL_CHUNK
    assert (lengths[-1], proposed.tokens) == (len(text), ())


def test_a_text_that_does_not_fit_is_not_drafted_for_and_others_are(drafter: LlamaDrafter) -> None:
    long, short = run(drafter, wanted(1, text=(TEXT * 200)[: drafter.context_len]), wanted(2))
    assert (long.tokens, len(short.tokens)) == ((), 12)


def test_alternatives_stand_beside_doubtful_tokens(drafter: LlamaDrafter) -> None:
    [proposed] = run(drafter, wanted(wants_alternatives=True))
    assert proposed.parents is not None
    assert len(proposed.tokens) > len(set(proposed.parents))  # some node has two children
    places = list(zip(proposed.parents, proposed.tokens, strict=True))
    assert len(places) == len(set(places))


def test_no_draft_is_deeper_than_permitted_and_under_the_ratio_rule_there_is_none(drafter: LlamaDrafter) -> None:
    assert len(tokens_of(drafter, length=12, max_depth=3)) == 3
    assert tokens_of(drafter, 2, verification="ratio") == ()


def test_rules_that_need_only_the_likeliest_tokens_apply(drafter: LlamaDrafter) -> None:
    plain = tokens_of(drafter, sampling=GREEDY)
    banned = tokens_of(drafter, 2, sampling=GREEDY, stop_ids=plain[:1], min_tokens=5)
    biased = LogitRules(logit_bias=(TokenBias(plain[0], -50.0),))
    pushed = tokens_of(drafter, 3, sampling=GREEDY, logit_rules=biased)
    assert banned[0] == pushed[0] != plain[0]
    assert tokens_of(drafter, 4, sampling=GREEDY, stop_ids=plain[2:3]) == plain[:3]


def test_another_tokenizer_is_refused(running: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    wider = SimpleNamespace(get_vocab=lambda: {"a word": 4999}, added_tokens_decoder={})
    with pytest.raises(CheckpointError, match="has another tokenizer than --tokenizer tiny-target: 4096 tokens, not"):
        running.check(dataclasses.replace(VOCABULARY, tokenizer=wider, num_tokens=5000))
    monkeypatch.setattr(server, "encode_part", lambda tokenizer, text: [1, 2, 3])
    with pytest.raises(CheckpointError, match="a test text has other token ids; give a GGUF file of the target's"):
        running.check(VOCABULARY)


def test_a_file_without_the_tokenizers_added_tokens_drafts_what_it_has(running: Server) -> None:
    padded = tokenizer_folder.load("tiny-target").tokenizer
    padded.add_special_tokens({"pad_token": "[PAD]"})
    assert num_tokens(padded) == VOCABULARY.num_tokens + 1
    targets = dataclasses.replace(VOCABULARY, tokenizer=padded, num_tokens=num_tokens(padded))
    assert running.check(targets) == VOCABULARY.num_tokens
    narrow = LlamaDrafter(running, VOCABULARY.num_tokens)
    narrow.vocab_size = 100  # the target's
    assert all(token < 100 for token in tokens_of(narrow, wants_alternatives=True))
    assert tokens_of(narrow, 2, text=(*TEXT, VOCABULARY.num_tokens)) == ()


@pytest.mark.parametrize(
    ("url", "environment", "why"),
    [
        ("https://127.0.0.1:8080", {}, "write http://HOST:PORT"),
        ("http://me:secret@127.0.0.1:8080", {}, "write http://HOST:PORT, and a key into LLAMA_API_KEY"),
        ("http://127.0.0.1:8080/v1", {}, "write http://HOST:PORT"),
        ("http://127.0.0.1:99999", {}, "write http://HOST:PORT"),
        ("http://127.0.0.1:8080\n", {}, "write http://HOST:PORT"),
        ("http://192.0.2.1:8080", {}, "is beyond this machine: .* or --trusted-network"),
        ("http://127.0.0.1:8080", {"LLAMA_API_KEY": "a\nsecret"}, "LLAMA_API_KEY holds no key"),
    ],
)
def test_a_url_or_key_that_is_none_is_refused_and_no_secret_told(url: str, environment: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as error:
        connecting.at_url(url, environment, trusted_network=False)
    assert "secret" not in str(error.value)


# -- a server that does not work ---------------------------------------------------------------------------------------


def completion(*tokens: int, **changes: Any) -> dict[str, Any]:
    top = [{"id": token, "logprob": -0.1} | changes for token in tokens]
    entries = [{"id": token, "top_logprobs": top} for token in tokens]
    return {"tokens": tokens, "completion_probabilities": entries}


def raw(body: object, status: int = 200) -> tuple[int, bytes]:
    return status, body if isinstance(body, bytes) else json.dumps(body).encode()


BAD: dict[str, Any] = {
    "no JSON": raw(b"\xff{"),
    "deep": raw(b'{"x":' + b"[" * 10000),
    "negative ids": raw(completion(-1)),
    "huge ids": raw(completion(1 << 40)),
    "certain beyond 1": raw(completion(7, logprob=3.0)),
    "too many places": raw(completion(*range(1000))),
    "no tokens": raw({"completion_probabilities": completion(7)["completion_probabilities"]}),
    "probabilities of others": raw(completion(7) | {"tokens": [8]}),
    "too many bytes": raw(json.dumps(completion(7)).encode() + b" " * server.MAX_ANSWER_BYTES),
    "an error": raw({"error": "x"}, 500),
    "no entry": raw({}, 401),
    "nothing": None,
}


@pytest.mark.parametrize(
    ("tokens", "entries", "own"),
    [
        ([A, B, C, D], [C, D], [None, None, 0, 1]),
        ([A, B, C, A, B, C, A], [C, C], [None, None, 0, None, None, 1, None]),  # ends within a character
        ([A, B], [], [None, None]),
        ([D, D, D], [D, D, D], [0, 1, 2]),
        ([A, C, C, D], [C, D], [None, 0, None, 1]),  # either C may be the one
    ],
)
def test_probabilities_belong_to_tokens_by_id(tokens: list[int], entries: list[int], own: list[int | None]) -> None:
    found = [{"id": each, "top_logprobs": [{"id": index, "logprob": 0.0}]} for index, each in enumerate(entries)]
    with fake(lambda: raw({"tokens": tokens, "completion_probabilities": found})) as running:
        [places] = running.complete([Ask(0, (1,), len(tokens), 1)])
    assert places is not None
    assert [place.id for place in places] == tokens
    assert [place.top_logprobs[0].id if place.top_logprobs else None for place in places] == own


def test_a_server_that_speculates_itself_tells_less_and_drafts_as_far() -> None:
    """Its answer to "1, 2, 3, 4," of ngram-simple, shortened: the first token is its own, the others it had drafted."""
    first = {"id": 216, "logprob": -0.003, "top_logprobs": [{"id": 216, "logprob": -0.003}]}
    others: list[dict[str, Any]] = [{"id": each, "logprob": 0.0, "top_logprobs": []} for each in (37, 28, 216)]
    answer = {"tokens": [216, 37, 28, 216], "completion_probabilities": [first, *others]}
    with fake(lambda: raw(answer)) as running:
        assert tokens_of(LlamaDrafter(running, 49152), length=4, sampling=GREEDY) == (216, 37, 28, 216)


def test_a_server_that_never_tells_the_likeliest_tokens_is_not_asked_for_ever() -> None:
    asked = []
    answer = {"tokens": [7], "completion_probabilities": [{"id": 7, "top_logprobs": []}]}
    with fake(lambda: asked.append(1) or raw(answer)) as running:  # type: ignore[func-returns-value]
        assert tokens_of(LlamaDrafter(running, 50)) == ()
    assert len(asked) == 2


@contextmanager
def fake(answer: Any) -> Iterator[Server]:
    """A server that answers every request with what `answer` returns; None: it says nothing and hangs up."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            found = answer()
            if found is None:
                self.close_connection = True
                return
            status, body = found
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        vars(listening)["handle_error"] = lambda *_: None  # the client may hang up
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        found = Server("fake", "127.0.0.1", listening.server_address[1], "key")
        found.num_slots, found.context_len = 2, 1000
        yield found
        found.close()
        listening.shutdown()


@pytest.mark.parametrize("what", BAD)
def test_a_hostile_answer_is_an_error_by_name(what: str) -> None:
    with fake(lambda: BAD[what]) as bad, pytest.raises((MalformedMessage, TransportError), match="fake") as error:
        run(LlamaDrafter(bad, 100), wanted(text=(1, 2), prompt=(1, 2)))
    assert "key" not in str(error.value).replace("API key", "").replace("LLAMA_API_KEY", "")
    assert len(str(error.value)) < 600


def test_the_least_temperature_fails_nobody() -> None:
    coldest = Sampling(temperature=5e-324, top_k=3)
    with fake(lambda: raw(completion(7, 8))) as running:
        assert len(tokens_of(LlamaDrafter(running, 50), length=3, sampling=coldest)) >= 3


def test_texts_that_take_too_long_together_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STEP_TOKENS", 15)
    with fake(lambda: raw(completion(7))) as running:
        drafter = LlamaDrafter(running, 50)
        asked = record(drafter)
        found = run(drafter, *(wanted(number, 2, tuple(range(10))) for number in (1, 2)))
    assert all(len(proposed.tokens) >= 2 for proposed in found)
    assert len(asked[0]) == 1


@pytest.mark.parametrize(
    ("answer", "tokens"),
    [
        (raw(completion(99)), ()),
        (raw(completion(*[7] * 90)), (7, 7, 7)),
        (raw({}), ()),
        (raw({"error": {"message": "too long"}}, 400), ()),
    ],
    ids=["beyond the vocabulary", "endless", "no entry", "too long"],
)
def test_an_answer_is_cut_and_one_without_tokens_of_the_vocabulary_ends_the_proposal(answer, tokens):
    with fake(lambda: answer) as bad:
        assert tokens_of(LlamaDrafter(bad, 50), length=3, sampling=GREEDY) == tokens


async def test_a_server_that_fails_is_left_alone_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    answers = [BAD["an error"], raw(completion(7))]
    with fake(lambda: answers[0]) as bad:
        drafting = Drafting(LlamaDrafter(bad, 100))
        assert drafting.want(wanted(length=1), 0.0) is None
        assert [given_up.tokens for given_up in await drafting.take()] == [()]
        assert drafting.breaker.num_failures == 1
        del answers[0]
        assert drafting.want(wanted(length=1), asyncio.get_running_loop().time() + 60.0) is None
        assert [proposed.tokens for proposed in await drafting.take()] == [(7,)]
        drafting.close()
    assert "answers with status 500" in caplog.text


@pytest.mark.parametrize("begin", [b"", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n"])
def test_a_silent_or_dripping_server_has_the_time_for_a_step_and_no_more(begin, monkeypatch):
    monkeypatch.setattr("draft_node.model.circuit_breaker.DRAFTING_TIMEOUT_S", 0.3)
    may_end = threading.Event()

    def drip(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection, suppress(OSError):
            connection.sendall(begin)
            while not may_end.wait(0.02):
                connection.sendall(b"x" if begin else b"")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        dripping = threading.Thread(target=drip, args=(listening,))
        dripping.start()
        slow = Server("fake", "127.0.0.1", listening.getsockname()[1])
        slow.num_slots, slow.context_len = 2, 1000
        guard = threading.Timer(30.0, may_end.set)
        guard.start()
        with pytest.raises(TransportError, match=r"takes too long|timed out"):
            run(LlamaDrafter(slow, 100), wanted())
        assert not may_end.is_set()
        guard.cancel()
        may_end.set()
        dripping.join()
