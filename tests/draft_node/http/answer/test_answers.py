"""Answers have their documented form, whole and streamed, also where they break."""

import asyncio
import json
import re
from typing import Any

import openai
import pytest

from draft_node.core.counts import Statistics
from draft_node.core.generation import Generation
from draft_node.http.answer.completions import CompletionShape
from draft_node.http.answer.logprobs import Offsets, for_completion
from draft_node.http.answer.shape import items_of
from draft_node.http.ask.generation import Batch
from draft_node.http.schema.chat import CompletionRequest
from draft_node.parsing.parser import ONLY_CONTENT
from draft_node.service.output_processor import Ended, Piece
from draft_node.service.token_text import Token
from goodspeed.errors import Busy, Draining, RequestRefused, VerifyAway
from goodspeed.serving.web.errors import FAILED_HERE
from goodspeed.wire.messages import Sampling
from tests.draft_node.http.fake import LETTERS, Api, Client, FakeService, chunks_of, error_of, events_of, official

BY = {"drafted_by": {"model": 1, "ngram": 2, "self": 0}, "accepted_by": {"model": 0, "ngram": 1, "self": 0}}
SPECULATION = {"rounds": 2, "drafted": 3, "accepted": 1} | BY
BUG, AWAY = ZeroDivisionError("as ordered"), VerifyAway("verify_away", "away")
OPENAIS_BUG = {"message": FAILED_HERE, "type": "server_error", "param": None, "code": "internal"}
ANTHROPICS_BUG = {"message": FAILED_HERE, "type": "api_error"}
BREAKS = [
    (Busy("busy", "too many"), 429, "busy"),
    (Draining("draining", "shutting down"), 503, "draining"),
    (VerifyAway("verify_away", "cannot be reached"), 503, "verify_away"),
    (RequestRefused("failed", "the target failed"), 503, "failed"),
    (RequestRefused("target_changed", "another target"), 503, "target_changed"),
    (Busy("not_promised", "not now; ask again later"), 429, "not_promised"),
    (RequestRefused("prompt", "too long"), 400, "prompt"),
    (RequestRefused("constraint", "the form became too costly"), 400, "unsupported_form"),
]


def test_a_completion(api: Api) -> None:
    answer = api.complete(max_tokens=3).json()
    assert answer.pop("id").startswith("cmpl-")
    assert answer.pop("created") > 1.7e9
    counts = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
    assert answer.pop("usage") == counts | {"prompt_tokens_details": {"cached_tokens": 0}, "goodspeed": SPECULATION}
    assert answer.pop("choices") == [{"index": 0, "text": "abc", "logprobs": None, "finish_reason": "length"}]
    assert answer == {"object": "text_completion", "model": "big-model", "system_fingerprint": "fp_b1"}


def test_a_chat(api: Api) -> None:
    answer = api.chat(max_tokens=3).json()
    assert answer.pop("id").startswith("chatcmpl-")
    assert answer["object"] == "chat.completion"
    message = {"role": "assistant", "content": "abc", "refusal": None}
    assert answer["choices"] == [{"index": 0, "message": message, "logprobs": None, "finish_reason": "length"}]


@pytest.mark.parametrize(("verification", "name"), [("match", "fp_b1"), ("ratio", "fp_b1_d1")])
def test_every_answer_and_every_chunk_names_the_target(verification: str, name: str) -> None:
    """Under the ratio rule the draft model has a part in it."""
    api = Api(verification=verification)
    for ask in (api.complete, api.chat):
        assert ask(max_tokens=3).json()["system_fingerprint"] == name
        chunks = chunks_of(ask(max_tokens=3, stream=True, stream_options={"include_usage": True}))
        assert {chunk["system_fingerprint"] for chunk in chunks} == {name}


def test_prompts_and_choices_in_order_with_the_prompt_before_them(api: Api) -> None:
    answer = api.complete(prompt=[[72, 105], [72, 111]], n=2, max_tokens=2, echo=True).json()
    told = [(choice["index"], choice["text"]) for choice in answer["choices"]]
    assert told == [(0, "Hiab"), (1, "Hiab"), (2, "Hoab"), (3, "Hoab")]
    usage = answer["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (4, 8)
    by = {"drafted_by": {"model": 4, "ngram": 8, "self": 0}, "accepted_by": {"model": 0, "ngram": 4, "self": 0}}
    assert usage["goodspeed"] == {"rounds": 8, "drafted": 12, "accepted": 4} | by


@pytest.mark.parametrize("n", [1, 3])
def test_joined_chunks_are_the_whole_text(api: Api, n: int) -> None:
    texts = [""] * n
    reasons: list[list[str | None]] = [[] for _ in range(n)]
    for chunk in chunks_of(api.complete(prompt="Hi", n=n, max_tokens=30, stream=True, echo=True)):
        assert "usage" not in chunk
        [choice] = chunk["choices"]
        texts[choice["index"]] += choice["text"]
        reasons[choice["index"]] += [choice["finish_reason"]] * (choice["finish_reason"] is not None)
    assert texts == ["Hi" + LETTERS + LETTERS[:4]] * n
    assert reasons == [["length"]] * n


def test_a_streamed_chat_says_first_who_speaks_and_last_why_it_ends(api: Api) -> None:
    chunks = chunks_of(api.chat(max_tokens=2, stream=True))
    deltas = [{"role": "assistant", "content": ""}, {"content": "a"}, {"content": "b"}, {}]
    assert [chunk["choices"][0]["delta"] for chunk in chunks] == deltas
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, None, None, "length"]
    assert len({chunk["id"] for chunk in chunks}) == 1


@pytest.mark.parametrize("ask", [Api.complete, Api.chat])
def test_usage_comes_last(api: Api, ask: Any) -> None:
    *others, last = chunks_of(ask(api, max_tokens=3, stream=True, stream_options={"include_usage": True}))
    assert all(chunk["usage"] is None for chunk in others)
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 3
    assert last["usage"]["goodspeed"] == SPECULATION


def test_usage_as_it_grows(api: Api) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = chunks_of(api.complete(max_tokens=3, stream=True, stream_options=options))
    assert [chunk["usage"]["completion_tokens"] for chunk in chunks] == [1, 2, 3, 3, 3]
    assert all(chunk["usage"]["prompt_tokens"] == 5 for chunk in chunks)


def test_the_usage_tells_what_was_in_memory_before_any_choice_had_read_it(api: Api) -> None:
    api.service.cached = [4, 2]
    answers = [ask(max_tokens=2) for ask in (api.complete, api.chat, api.chat)]
    api.service.cached = [0, 4, 4, 3, 4, 0, 1]
    answers += [api.complete(max_tokens=2, n=3), api.complete(prompt=["hello", "you"], max_tokens=2, n=2)]
    told = [answer.json()["usage"]["prompt_tokens_details"] for answer in answers]
    assert told == [{"cached_tokens": number} for number in (4, 2, 0, 0, 3)]


def test_logprobs_of_a_completion(api: Api) -> None:
    logprobs = api.complete(max_tokens=3, logprobs=1).json()["choices"][0]["logprobs"]
    assert logprobs.pop("top_logprobs") == [{"a": -0.25}, {"a": -0.5, "b": -0.25}, {"a": -0.5, "c": -0.25}]
    assert logprobs == {"tokens": ["a", "b", "c"], "token_logprobs": [-0.25] * 3, "text_offset": [0, 1, 2]}


def test_logprobs_of_a_chat(api: Api) -> None:
    content = api.chat(max_tokens=2, logprobs=True, top_logprobs=1).json()["choices"][0]["logprobs"]["content"]
    top = [{"token": "a", "logprob": -0.5, "bytes": [97]}]
    assert content[1] == {"token": "b", "logprob": -0.25, "bytes": [98], "top_logprobs": top}
    assert api.chat(max_tokens=1, logprobs=True).json()["choices"][0]["logprobs"]["content"][0]["top_logprobs"] == []


def test_logprobs_in_chunks_are_those_of_the_whole(api: Api) -> None:
    whole = api.complete(max_tokens=5, logprobs=2).json()["choices"][0]["logprobs"]
    chunks = chunks_of(api.complete(max_tokens=5, logprobs=2, stream=True))
    parts = [chunk["choices"][0]["logprobs"] for chunk in chunks]
    assert {name: [value for part in parts if part for value in part[name]] for name in whole} == whole
    content = api.chat(max_tokens=5, logprobs=True, top_logprobs=2).json()["choices"][0]["logprobs"]["content"]
    chunks = chunks_of(api.chat(max_tokens=5, logprobs=True, top_logprobs=2, stream=True))
    parts = [chunk["choices"][0]["logprobs"] for chunk in chunks]
    assert [token for part in parts if part for token in part["content"]] == content


def test_logprobs_of_a_text_that_ends_before_its_first_token() -> None:
    class Silent(FakeService):
        async def write(self, generation, parser=ONLY_CONTENT):
            yield Ended("stop", None, 0, Statistics())

    api = Api(service=Silent())
    none: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    assert api.complete(logprobs=1).json()["choices"][0]["logprobs"] == none
    assert api.chat(logprobs=True).json()["choices"][0]["logprobs"]["content"] == []
    for ask in (api.complete, api.chat):
        assert ask().json()["choices"][0]["logprobs"] is None


def test_tokens_that_are_parts_of_a_character() -> None:
    raws = [b"a", b"\xe2", b"\x82\xac", b"\xff", b"z"]
    tokens = [Token(i, raw.decode("utf-8", "replace"), raw, -1.0) for i, raw in enumerate(raws)]
    shown = for_completion(tokens, Offsets())
    assert shown["tokens"] == ["a", r"bytes:\xe2", r"bytes:\x82\xac", r"bytes:\xff", "z"]
    assert shown["text_offset"] == [0, 1, 1, 2, 3]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("error", "status", "code"), BREAKS)
def test_what_fails_before_the_first_token_is_said_by_the_status(api, error, status, code, stream):
    api.fail(error)
    answer = api.chat(n=2, stream=stream)
    assert error_of(answer, status)["code"] == code
    assert ("Retry-After" in answer.headers) == (status in (429, 503))


@pytest.mark.parametrize(("error", "status", "code"), BREAKS)
def test_a_stream_that_breaks_says_so_and_ends(api: Api, error, status: int, code: str) -> None:
    api.fail(error, after=2)
    *chunks, broken, done = events_of(api.complete(stream=True, max_tokens=5))
    assert [json.loads(chunk)["choices"][0]["text"] for chunk in chunks] == ["a", "b"]
    assert json.loads(broken)["error"]["code"] == code
    assert done == "[DONE]"
    assert error_of(api.complete(max_tokens=5), status)["code"] == code


def test_the_official_client_raises_what_breaks_a_stream(api: Api) -> None:
    api.fail(VerifyAway("verify_away", "it went away"), after=2)
    stream = official(api).completions.create(model="goodspeed", prompt="hello", stream=True)
    assert [next(stream).choices[0].text for _ in range(2)] == ["a", "b"]
    with pytest.raises(openai.APIError, match="it went away"):
        next(stream)


@pytest.mark.parametrize(
    ("path", "raised", "error"),
    [
        ("completions", BUG, OPENAIS_BUG),
        ("chat/completions", BUG, OPENAIS_BUG),
        ("responses", BUG, {"message": FAILED_HERE, "code": "server_error"}),
        ("responses", AWAY, {"message": "away", "code": "server_error"}),
        ("messages", BUG, ANTHROPICS_BUG),
        ("messages", AWAY, {"message": "away", "type": "overloaded_error"}),
    ],
)
def test_a_stream_that_breaks_ends_with_an_error_of_its_api_and_a_bug_is_logged(api, caplog, path, raised, error):
    api.fail(raised, after=1)
    text = api.ask(path, stream=True).text
    *_, before, last = (json.loads(event) for event in re.findall(r"^data: (\{.*)", text, re.MULTILINE))
    assert '"a"' in json.dumps(before)
    assert last.get("response", last)["error"] == error
    assert ("as ordered" in caplog.text) is (raised is BUG)


@pytest.mark.parametrize(("path", "error"), [("completions", OPENAIS_BUG), ("messages", ANTHROPICS_BUG)])
def test_a_bug_before_the_first_token_is_said_in_the_formats_of_errors(path: str, error: dict[str, Any]) -> None:
    """The error goes on to the server, which logs it."""
    api = Api()
    api.fail(ZeroDivisionError("a secret"))
    with pytest.raises(ZeroDivisionError):
        api.ask(path)
    api.client = Client(api.app, raise_server_exceptions=False)
    answer = api.ask(path)
    assert (answer.status_code, answer.json()["error"]) == (500, error)


async def test_no_text_goes_on_when_one_of_several_fails() -> None:
    closed = []

    class Service(FakeService):
        async def write(self, generation, parser=ONLY_CONTENT):
            if generation.max_tokens == 1:
                raise RequestRefused("failed", "as ordered")
            try:
                yield Piece(())
                await asyncio.Event().wait()
            finally:
                closed.append(generation.max_tokens)

    texts = [Generation(bytes(16), (1,), Sampling(), number) for number in (3, 2, 1)]
    shape = CompletionShape(CompletionRequest(prompt="x"), Batch(texts), "goodspeed")
    with pytest.raises(RequestRefused):
        [_ async for _ in items_of(shape, Service())]
    assert closed == [3, 2]
