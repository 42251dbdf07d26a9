"""A body's elements are bounded, and no body blocks the node, accepted or not."""

import asyncio
import contextlib
import gc
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import AsyncMock

import pytest
from starlette.requests import Request

from draft_node.http.ask import body as body_module
from draft_node.http.ask.body import MAX_BARE_BYTES, MAX_CONTAINERS, MAX_STRINGS, MAX_VALUES, validated
from draft_node.http.schema import chat
from draft_node.http.schema.chat import MAX_PARTS, ChatRequest, CompletionRequest
from draft_node.http.schema.errors import ApiError
from draft_node.http.schema.messages import MessagesRequest
from draft_node.http.schema.responses import ResponsesRequest
from draft_node.http.schema.strict import Strict
from draft_node.service.service import body_queue
from tests.draft_node.http import fake
from tests.draft_node.http.fake import Api, scope_of

HANGS_S = 3.0
"""Ten times what the costliest body took on a quiet machine, so that a slow one passes."""

SIZE = 4 << 20
PATHS = [*(f"v1/{path}" for path in fake.BODIES), "v1/messages/count_tokens", "tokenize", "detokenize"]
NUM_BODIES = 12


def repeated(element: bytes, number: int | None = None, name: str = "prompt") -> bytes:
    """A body with a list of so many of these, as many as 4 MiB can have unless told."""
    number = (SIZE - 100) // (len(element) + 1) if number is None else number
    return b'{"' + name.encode() + b'":[' + b",".join([element] * number) + b"]}"


ONE_PART = b'{"type":"text","text":""}'
MANY_PARTS = b'{"role":"user","content":[' + b",".join([ONE_PART] * (MAX_PARTS - 1)) + b"]}"
NUM_LISTS = MAX_CONTAINERS // MAX_PARTS
CALL = b'{"type":"tool_use","id":"c","name":"f","input":{"a":1}}'
CALLS = b'{"role":"assistant","content":[' + b",".join([CALL] * 1000) + b"]}"
MANY_TEXTS = b",".join([b'{"type":"input_text","text":""}'] * (MAX_PARTS - 1))
MANY_OUTPUTS = b'{"type":"function_call_output","call_id":"c","output":[' + MANY_TEXTS + b"]}"
ONE_TOOL = b'{"type":"custom","name":"a"}'
MANY_TOOLS = b'{"type":"additional_tools","tools":[' + b",".join([ONE_TOOL] * (chat.MAX_TOOLS - 1)) + b"]}"

BODIES: dict[str, tuple[type[Strict], bytes]] = {
    "small lists": (CompletionRequest, repeated(b"[1]")),
    "empty lists, unknown": (CompletionRequest, repeated(b"[]", name="x")),
    "as many lists as may be": (CompletionRequest, repeated(b"[1]", MAX_CONTAINERS - 2)),
    "as many objects as may be": (ChatRequest, repeated(b'{"a":1}', MAX_CONTAINERS - 2, name="messages")),
    "numbers": (CompletionRequest, repeated(b"1")),
    "as many ids as may be": (CompletionRequest, repeated(b"151643", MAX_VALUES)),
    "64 prompts of 4,095 ids": (CompletionRequest, repeated(b"[" + b",".join([b"12345"] * 4095) + b"]", 64)),
    "large numbers, unknown": (CompletionRequest, repeated(b"9" * 20, MAX_BARE_BYTES // 21 - 1, name="x")),
    "19 digits": (CompletionRequest, repeated(b"9" * 19, MAX_BARE_BYTES // 20 - 1, name="x")),
    "ids and spaces": (CompletionRequest, repeated(b" " * 8 + b"151643", MAX_VALUES)),
    "spaces": (CompletionRequest, repeated(b" ", 1, name="x") + b" " * (SIZE - 100)),
    "as many floats as may be": (CompletionRequest, repeated(b"1.5e100", MAX_VALUES)),
    "small texts": (CompletionRequest, repeated(b'""')),
    "unknown members": (CompletionRequest, b"{" + b",".join(b'"x%06d":1' % i for i in range(MAX_STRINGS)) + b"}"),
    "one text": (CompletionRequest, b'{"prompt":"' + b"a" * (SIZE - 20) + b'"}'),
    "escapes": (CompletionRequest, b'{"prompt":"' + b"\\u00e9" * (SIZE // 6 - 20) + b'"}'),
    "quotes": (CompletionRequest, b'{"prompt":"' + b'\\"' * (SIZE // 2 - 20) + b'"}'),
    "64 texts": (CompletionRequest, repeated(b'"' + b"a" * (SIZE // 64 - 10) + b'"', 64)),
    "parts": (ChatRequest, repeated(ONE_PART, name="messages")),
    "as many parts as may be": (ChatRequest, repeated(MANY_PARTS, NUM_LISTS - 1, name="messages")),
    "as many blocks as may be": (MessagesRequest, repeated(MANY_PARTS, NUM_LISTS - 1, name="messages")),
    "as many calls as may be": (MessagesRequest, repeated(CALLS, 28, name="messages")),
    "as many parts of outputs as may be": (ResponsesRequest, repeated(MANY_OUTPUTS, NUM_LISTS - 1, name="input")),
    "as many unknown items as may be": (ResponsesRequest, repeated(b'{"type":"a"}', MAX_CONTAINERS - 2, name="input")),
    "as many tools as may be": (
        ResponsesRequest,
        repeated(MANY_TOOLS, MAX_CONTAINERS // chat.MAX_TOOLS - 1, name="input"),
    ),
    "deep": (CompletionRequest, b'{"prompt":' + b"[" * (SIZE - 20)),
    "ids to decode": (chat.DetokenizeRequest, repeated(b"1", MAX_VALUES, name="tokens")),
    "messages to encode": (chat.TokenizeRequest, repeated(MANY_PARTS, NUM_LISTS - 1, name="messages")),
}
"""Up to 4 MiB each of what costs most in its kind."""


@pytest.fixture(scope="module", autouse=True)
def _frozen() -> Iterator[None]:
    """Objects that were there before are not scanned while bodies are read, as in a node."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def cpu_s(kind: str) -> float:
    """Seconds of this thread in which the body is read, or refused."""
    started = time.thread_time()
    with contextlib.suppress(ApiError):
        validated(*BODIES[kind])
    return time.thread_time() - started


def taken(body: bytes) -> bool:
    try:
        body_module.check_elements(body)
    except ApiError as error:
        return error.status != 413
    return True


@pytest.mark.parametrize(
    ("body", "most"),
    [
        (lambda number: repeated(b"[]", number - 2), MAX_CONTAINERS),
        (lambda number: repeated(b"{}", number - 2), MAX_CONTAINERS),
        (lambda number: repeated(b'"a"', number - 1), MAX_STRINGS),
        (lambda number: repeated(b"1", number), MAX_VALUES),
    ],
    ids=["lists", "objects", "texts", "values"],
)
def test_at_the_bound_and_one_above(body: Callable[[int], bytes], most: int) -> None:
    assert taken(body(most))
    assert not taken(body(most + 1))


def test_bytes_besides_texts() -> None:
    bare = len(b"{:}")
    assert taken(b'{"prompt":"' + b"a" * SIZE + b'"}' + b"1" * (MAX_BARE_BYTES - bare) + b" " * 1000)
    assert not taken(b'{"prompt":"a"}' + b"1" * (MAX_BARE_BYTES - bare + 1))
    assert not taken(b'{"prompt":"a"}' + b"\n" * (MAX_BARE_BYTES - bare + 1))


def test_spaces_after_commas_are_not_counted() -> None:
    """64 prompts of 4,096 ids of six digits pass as Python's json writes them, too."""
    body = json.dumps({"prompt": [[151643] * 4095] * 64}).encode()
    assert len(body) > MAX_BARE_BYTES - 1000
    assert taken(body.replace(b", ", b",  "))


@pytest.mark.parametrize(
    "text", [",[{" * 100_000, '","' * 100_000, '\\"' * 100_000, "\\" * 99_999, '\\\\"[,' * 50_000, '"' * 100_001]
)
def test_what_stands_in_a_text_is_not_counted(text: str) -> None:
    assert taken(json.dumps({"prompt": text, "stop": [text, text + "x"]}).encode())
    assert not taken(json.dumps({"prompt": [text] + [[]] * MAX_CONTAINERS}).encode())


@pytest.mark.parametrize("kind", BODIES)
def test_no_body_hangs_what_reads_it(kind: str) -> None:
    """Reading JSON holds the interpreter, and every other user waits. Quadratic time in 4 MiB would be minutes."""
    assert any(cpu_s(kind) < HANGS_S for _ in range(3))


@pytest.mark.thorough
@pytest.mark.parametrize("path", PATHS)
def test_the_answer_names_the_bound(path: str) -> None:
    answer = Api().client.post(f"/{path}", content=repeated(b"[1]"), headers={"Content-Type": "application/json"})
    assert answer.status_code == 413
    assert f"{MAX_CONTAINERS} lists and objects" in answer.json()["error"]["message"]


# -- several large bodies at once --------------------------------------------------------------------------------------


async def test_one_body_is_read_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    lock, read = threading.Lock(), list[tuple[bool, str]]()
    validated = body_module.validated

    def noted(*args: Any) -> Any:
        is_alone = lock.acquire(blocking=False)
        read.append((is_alone, threading.current_thread().name.partition("_")[0]))
        try:
            return validated(*args)
        finally:
            if is_alone:
                lock.release()

    monkeypatch.setattr(body_module, "validated", noted)
    schema, content = BODIES["64 prompts of 4,095 ids"]
    receive = AsyncMock(return_value={"type": "http.request", "body": content, "more_body": False})
    requests = (Request(scope_of("/", f"10.0.0.{user}"), receive) for user in range(NUM_BODIES))
    queue = body_queue()
    found: Any = await asyncio.gather(*(body_module.read(request, schema, queue) for request in requests))
    queue.close()
    assert [len(each.prompt) for each in found] == [64] * NUM_BODIES
    assert read == [(True, "bodies")] * NUM_BODIES
