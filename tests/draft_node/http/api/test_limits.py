"""Every limit at its maximum and one above; and bodies that are none."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from draft_node.http.ask import body as bodies
from draft_node.http.schema.chat import MAX_DETOKENIZED, MAX_MESSAGES, MAX_PARTS
from goodspeed.serving.api_keys import Keys
from goodspeed.serving.web.guards import OPEN_PATHS
from goodspeed.serving.web.server import serve
from tests.draft_node.http.fake import CONTEXT_LEN, Api, error_of, refused
from tests.listening import listen

JSON = {"Content-Type": "application/json"}
LONGEST = [{"role": "user", "content": [{"type": "text", "text": ""}] * MAX_PARTS}]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Api:
    """An API that takes bodies of up to 4,096 bytes."""
    monkeypatch.setattr(bodies, "MAX_BODY_BYTES", 4096)
    return Api()


def post(api: Api, content: Any, **headers: str) -> Any:
    return api.client.post("/v1/completions", content=content, headers=JSON | headers)


def padded(num_bytes: int) -> bytes:
    body = b'{"prompt": "hello"}'
    return body + b" " * (num_bytes - len(body))


def in_pieces(body: bytes) -> Iterator[bytes]:
    """Returns a body in pieces, so that it is sent without Content-Length."""
    return (body[start : start + 100] for start in range(0, len(body), 100))


@pytest.mark.parametrize("cut", [bytes, in_pieces])
def test_bodies(small: Api, cut) -> None:
    assert post(small, cut(padded(4096))).status_code == 200
    assert error_of(post(small, cut(padded(4097))), 413)["code"] == "too_large"


def never() -> Iterator[bytes]:
    raise AssertionError("it was read")
    yield b""


def test_a_body_that_says_it_is_too_large_is_not_read(small: Api) -> None:
    assert error_of(post(small, never(), **{"Content-Length": "4097"}), 413)["code"] == "too_large"


def test_no_body_is_read_for_those_who_need_no_key(small: Api) -> None:
    assert OPEN_PATHS
    for path in (*OPEN_PATHS, "/"):
        answer = small.client.post(path, content=never(), headers={**JSON, "Content-Length": "100"})
        assert error_of(answer, 405)["code"] == "method_not_allowed"


async def test_who_sends_all_of_a_body_that_is_too_large_is_answered(small: Api) -> None:
    """The client may go on with the same connection."""
    listener = listen()
    serving = asyncio.create_task(serve(small.app, listener))
    reader, writer = await asyncio.open_connection(*listener.getsockname())
    head = b" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    writer.write(b"POST /v1/completions" + head + b"Content-Length: 10000000\r\n\r\n" + bytes(10_000_000))
    await writer.drain()
    assert (await reader.readuntil(b"}}")).startswith(b"HTTP/1.1 413 ")
    writer.write(b"GET /health" + head + b"\r\n")
    assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200 ")
    writer.close()
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd"])
def test_compressed_bodies_are_refused(small: Api, encoding: str) -> None:
    assert error_of(post(small, padded(64), **{"Content-Encoding": encoding}), 415)["code"] == "unsupported_encoding"


@pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_only_json_is_taken(small: Api, kind: str) -> None:
    assert error_of(post(small, padded(64), **{"Content-Type": kind}), 415)["code"] == "unsupported_media_type"


NO_TEXTS = b'{"prompt": "\xff"}', b'{"prompt": "\\ud800"}', b'{"\\ud800": 1}'
NO_OBJECTS = b"", b"hello", b'{"prompt": "hello"', b'{"prompt": "hello"} {}', b"[" * 4000, b"null", b'"hello"', b"[1]"


@pytest.mark.parametrize("body", [*NO_TEXTS, *NO_OBJECTS])
def test_what_is_no_json_object(small: Api, body: bytes) -> None:
    error = error_of(post(small, body))
    assert error["code"] == "invalid_json"
    assert bool(body) == ("is empty" not in error["message"])


@pytest.mark.parametrize(
    ("param", "number"),
    [("seed", "9" * 4000), ("temperature", "NaN"), ("temperature", "Infinity"), ("temperature", "1e999")],
)
def test_numbers_that_no_parameter_can_be(small: Api, param: str, number: str) -> None:
    refused(post(small, f'{{"prompt": "a", "{param}": {number}}}'), param, code="invalid_value")


@pytest.mark.parametrize(
    ("path", "body", "num_choices"),
    [
        ("/v1/completions", {"prompt": ["x"] * 64, "max_tokens": 1}, 64),
        ("/v1/completions", {"prompt": "x", "n": 16, "max_tokens": 1, "stop": ["x" * 256] * 4, "logprobs": 20}, 16),
        ("/v1/chat/completions", {"messages": LONGEST, "logprobs": True, "top_logprobs": 20}, 1),
        ("/detokenize", {"tokens": [65] * MAX_DETOKENIZED}, 0),
    ],
)
def test_at_the_most(api: Api, path: str, body: dict[str, Any], num_choices: int) -> None:
    """`test_refusals.py` has what is beyond."""
    answer = api.client.post(path, json=body)
    assert answer.status_code == 200
    assert len(answer.json().get("choices", [])) == num_choices


def test_messages(api: Api) -> None:
    assert api.chat(messages=[{"role": "user", "content": ""}] * 10).status_code == 200
    for number, code in ((MAX_MESSAGES, "context_length_exceeded"), (MAX_MESSAGES + 1, "invalid_value")):
        assert error_of(api.chat(messages=[{"role": "user", "content": ""}] * number))["code"] == code


def in_halves(num_chars: int) -> tuple[str, list[dict[str, str]]]:
    """A text, and a chat that has as many characters with the names of its roles."""
    text = "x" * num_chars
    return text, [{"role": "user", "content": half} for half in (text[1000:], text[: 1000 - 2 * len("user")])]


@pytest.mark.parametrize(("num_chars", "num_encoded"), [(2 * CONTEXT_LEN, 1), (2 * CONTEXT_LEN + 1, 0)])
def test_a_text_that_cannot_fit_is_not_even_encoded(num_chars: int, num_encoded: int) -> None:
    text, halves = in_halves(num_chars)
    for ask in (lambda api: api.complete(prompt=text), lambda api: api.chat(messages=halves)):
        api = Api()
        assert error_of(ask(api))["code"] == "context_length_exceeded"
        assert api.service.num_encoded == num_encoded


@pytest.mark.parametrize("context_len", [CONTEXT_LEN, 0], ids=["there", "away"])
def test_nor_is_it_to_be_counted(api: Api, context_len: int) -> None:
    """The limits hold with and without a verify node."""
    text, halves = in_halves(2 * CONTEXT_LEN + 1)
    api.service.context_len = context_len
    what = f"{CONTEXT_LEN + 1} tokens at least" if context_len else str(2 * CONTEXT_LEN)
    for param, given in (("prompt", text), ("messages", halves)):
        refused(api.client.post("/tokenize", json={param: given}), param, what, code="context_length_exceeded")
    assert api.service.num_encoded == 0


def test_names_count_as_well_as_what_is_said(api: Api) -> None:
    """A chat template may write them; 1,024 names of 512 characters are half a million."""
    named = [{"role": "user", "name": "x" * 512, "content": ""}] * 1024
    for path in ("/v1/chat/completions", "/tokenize"):
        refused(api.client.post(path, json={"messages": named}), "messages", code="context_length_exceeded")
    assert api.service.num_encoded == 0


def test_nothing_is_encoded_that_cannot_be_written_now(api: Api) -> None:
    api.service.context_len = 0
    for answer in (api.complete(), api.chat()):
        assert error_of(answer, 503)["code"] == "verify_away"
    assert api.service.num_encoded == 0
    assert api.service.stats.failed == {"verify_away": 2}


def test_whose_work_a_text_is() -> None:
    """A key's, whatever the address. The key itself is nowhere in it."""
    api = Api(keys=Keys(["first-key", "second-key"]))
    for key in ("first-key", "second-key", "first-key"):
        answer = api.client.post("/tokenize", json={"prompt": "x"}, headers={"Authorization": f"Bearer {key}"})
        assert answer.status_code == 200
    assert len(api.service.users) == 2
    assert not any("key" in user for user in api.service.users)
    api.client.headers["Authorization"] = "Bearer second-key"
    assert api.complete().status_code == api.chat().status_code == 200
    in_every_release = "8929247c2732438b9e6e53f08cf758fa"
    assert {generation.user for generation in api.service.generations} == {in_every_release}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "x"}),
        ("/v1/completions", {"prompt": [65], "echo": True}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
        ("/detokenize", {"tokens": [65]}),
    ],
)
def test_without_keys_a_text_is_the_work_of_its_address(api: Api, path: str, body: dict[str, Any]) -> None:
    assert api.client.post(path, json=body).status_code == 200
    assert api.service.users == {"testclient"}


def test_very_many_unknown_parameters_are_one_error() -> None:
    refused(Api().complete(**{f"x{number}": 1 for number in range(10_000)}), "x0", code="unknown_parameter")


@pytest.mark.parametrize(
    ("metadata", "param", "what"),
    [
        ({f"x{number}": "" for number in range(17)}, "metadata", "metadata must have at most 16 members"),
        ({f"x{number}": 1 for number in range(17)}, "metadata", "metadata must have at most 16 members"),
        ({"n" * 65: "v"}, "metadata", "metadata must have names of at most 64 characters"),
        ({"name": "v" * 513}, "metadata.name", "metadata.name must have at most 512 characters"),
    ],
)
def test_names_and_values_of_metadata(metadata: dict[str, str], param: str, what: str) -> None:
    """Chats keep none, so they ignore it; a response tells it again."""
    assert Api().chat(metadata=metadata).headers["X-GoodSpeed-Ignored"] == "metadata"
    client = Api().client
    assert client.post("/v1/responses", json={"input": "x", "metadata": {"n" * 64: "v" * 512}}).status_code == 200
    assert refused(client.post("/v1/responses", json={"input": "x", "metadata": metadata}), param) == what


@pytest.mark.parametrize(("running", "waiting", "status"), [(2, 0, 200), (2, 1, 200), (2, 2, 429), (2, 4, 429)])
def test_all_texts_of_a_request_are_let_in_or_none(running: int, waiting: int, status: int) -> None:
    api = Api(max_sessions=2, http_max_waiting=4)
    api.queue(running + waiting)
    answer = api.complete(n=3)
    assert answer.status_code == status
    assert len(api.service.generations) == (3 if status == 200 else 0)
    assert status == 200 or error_of(answer, 429)["type"] == "rate_limit_error"
    assert status == 200 or int(answer.headers["Retry-After"]) > 0


def test_a_user_with_many_texts_waits_and_another_is_let_in() -> None:
    api = Api()
    api.queue(272)
    error = error_of(answer := api.complete(), 429)
    what = "16 texts are running and 256 wait, 256 of them your own; at most 256 of yours may wait now; ask again later"
    assert (error["code"], error["message"]) == ("busy", what)
    assert int(answer.headers["Retry-After"]) > 0
    other = Api()
    other.queue(272, user="another address")
    assert other.complete(n=2).status_code == other.complete(prompt=["x"] * 64, n=2).status_code == 200
    error = error_of(other.complete(prompt=["x"] * 43, n=3), 429)
    assert "0 of them your own; at most 128 of yours may wait now" in error["message"]


def test_more_texts_than_the_node_ever_takes_is_no_matter_of_waiting() -> None:
    api = Api(max_sessions=1, http_max_waiting=4)
    assert api.complete(n=5).status_code == 200
    what = "the request asks for 6 texts; this node takes 5 at most; send several requests"
    assert refused(api.complete(n=6), "n") == what
    refused(api.complete(prompt=["x"] * 6), "prompt")
