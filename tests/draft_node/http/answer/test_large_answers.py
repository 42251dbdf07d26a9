"""Answers with very many log-probabilities: they are bounded, and made and sent without holding the event loop."""

import asyncio
import gc
import json
import threading
from collections.abc import AsyncGenerator, Iterator
from typing import Any
from unittest.mock import AsyncMock

import pytest
from pydantic_core import to_json
from starlette.types import Message

from draft_node.core.generation import Generation
from draft_node.http.answer import shape as shapes
from draft_node.http.answer import streams
from draft_node.http.answer.choices import Choice
from draft_node.http.answer.completions import CompletionShape
from draft_node.http.answer.logprobs import for_chat
from draft_node.http.answer.shape import BYTES
from draft_node.http.ask import generation as generations
from draft_node.http.ask.generation import Batch
from draft_node.http.schema.chat import CompletionRequest
from draft_node.service import output_buffer
from draft_node.service.chat_support import ChatSupport
from draft_node.service.fair_queue import FairQueue
from draft_node.service.service import LARGE_ANSWER
from goodspeed.errors import RequestRefused
from goodspeed.wire.messages import Sampling
from tests.chats import QWEN3, tokenizer
from tests.draft_node.http.fake import BODIES, CONTEXT_LEN, Api, FakeService, refused, scope_of
from tests.waiting import until

NUM_TOP = 20
TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}}
SAYS = "x" * (LARGE_ANSWER * BYTES)
PROMPTS = ["x" * (CONTEXT_LEN - 1)] * 2
WITH_LOGPROBS: dict[str, dict[str, Any]] = {
    "completions": {"logprobs": NUM_TOP, "n": 2},
    "chat/completions": {"logprobs": True, "top_logprobs": NUM_TOP},
}


def test_the_entries_of_a_chat_are_made_one_by_one_while_it_is_written() -> None:
    content = for_chat([FakeService.token("a", NUM_TOP)] * 50)["content"]
    assert isinstance(content, Iterator)
    assert [len(entry["top_logprobs"]) for entry in json.loads(to_json(content))] == [NUM_TOP] * 50


def test_the_tokens_of_an_answer_are_nothing_for_garbage_collection_to_look_at() -> None:
    token = FakeService.token("a", NUM_TOP)
    assert not any(map(gc.is_tracked, (token, *token.top)))


async def test_a_very_large_answer_does_not_hold_the_event_loop() -> None:
    """It is written on a thread of its own, beside which the event loop moves on: the writing waits until the loop has
    had a turn. And its choices are made one by one while it is written.
    """
    turned = threading.Event()
    writers: list[str] = []

    class Waiting(CompletionShape):
        def whole(self) -> bytes:
            writers.append(threading.current_thread().name)
            assert turned.wait(30)
            assert isinstance(self._told(), Iterator)
            return super().whole()

    generation = Generation(bytes(16), (1,), Sampling(), 900, num_logprobs=20)
    batch = Batch([generation] * 16, echoes=[""] * 16)
    shape, service = Waiting(CompletionRequest(prompt="x", logprobs=20), batch, "goodspeed"), FakeService()
    for i in range(16):
        async for item in service.write(generation):
            shape.choices[i].take(item)
    writing = asyncio.create_task(shapes.to_json(shape, service, "user"))
    await until(lambda: writers)
    turned.set()
    assert [len(choice["logprobs"]["tokens"]) for choice in json.loads(await writing)["choices"]] == [900] * 16
    assert [name.partition("_")[0] for name in writers] == ["answers"]


async def test_a_text_that_nobody_reads_ends_when_its_output_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake service gives the reader no turn before its text is over."""
    monkeypatch.setattr(output_buffer, "MAX_UNREAD", 40)
    service, shown = FakeService(), list[object]()
    write = service.write

    async def noted(*given: Any) -> AsyncGenerator[Any, None]:
        async for item in write(*given):
            shown.append(item)
            yield item

    monkeypatch.setattr(service, "write", noted)
    generation = Generation(bytes(16), (1,), Sampling(), 900)
    shape = CompletionShape(CompletionRequest(prompt="x"), Batch([generation], echoes=[""]), "goodspeed")
    with pytest.raises(RequestRefused, match="before it was read"):
        await shapes.collect(shape, service)
    assert len(shown) < 20


@pytest.fixture
def queued(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The queue of each piece of work that was done beside the event loop."""
    found: list[str] = []
    run = FairQueue.run

    async def noted(queue: FairQueue, user: str, size: int, work: Any) -> Any:
        def named() -> Any:
            found.append(threading.current_thread().name.partition("_")[0])
            return work()

        return await run(queue, user, size, named)

    monkeypatch.setattr(FairQueue, "run", noted)
    return found


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "body", "shown", "num_whole", "num_streamed"),
    [
        ("completions", {"prompt": PROMPTS, "n": 2, "echo": True}, PROMPTS[0], 1, 1),
        ("completions", {"prompt": PROMPTS, "n": 2, "return_token_ids": True}, "120,120,", 1, 1),
        ("completions", {"prompt": PROMPTS[0], "echo": True, "logprobs": 5}, PROMPTS[0], 1, 1),
        ("completions", {"prompt": "x", "echo": True}, "x", 0, 0),
        ("responses", {"input": "x", "tools": [{**TOOL, "description": SAYS}]}, SAYS, 1, 2),
        ("responses", {"input": "x", "tools": [TOOL]}, "x", 0, 0),
    ],
)
def test_what_is_long_is_shown_from_beside_the_event_loop(queued, path, body, shown, num_whole, num_streamed, stream):
    """A response has the tools of its request: in the first and last events of a stream."""
    api = Api()
    api.service.chats, api.service.max_chars = ChatSupport.of(tokenizer(QWEN3)), 1 << 20
    assert shown in api.ask(path, 1, **body, stream=stream).text
    assert queued.count("answers") == (num_streamed if stream else num_whole)
    assert ("bodies" in queued) == (shown is SAYS), "what repeats a large request is made where that is read"


@pytest.mark.parametrize("path", BODIES)
def test_a_stream_keeps_no_pieces_that_it_has_sent(api: Api, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit on the log-probabilities of a whole answer is what bounds the memory for them."""
    choices: list[Choice] = []

    def made() -> Choice:
        choices.append(Choice())
        return choices[-1]

    monkeypatch.setattr(shapes, "Choice", made)
    wanted = WITH_LOGPROBS.get(path, {})
    assert api.ask(path, 50, **wanted, stream=True).text.count("data:") > 50
    assert [(choice.pieces, choice.num_tokens) for choice in choices] == [([], 50)] * wanted.get("n", 1)
    choices.clear()
    assert api.ask(path, 50, **wanted).status_code == 200
    assert all(len(choice.pieces) == 50 for choice in choices)


@pytest.mark.parametrize(
    ("ask", "wanted"), [(Api.chat, {"logprobs": True, "top_logprobs": 2}), (Api.complete, {"logprobs": 2})]
)
def test_what_a_whole_answer_may_tell_is_bounded(api, ask, wanted, monkeypatch):
    monkeypatch.setattr(generations, "MAX_LOGPROBS_TOLD", 4 * 3 * 2)
    assert ask(api, max_tokens=4, n=2, **wanted).status_code == 200
    what = "30 tokens and alternatives are more than one answer's limit of 24"
    refused(ask(api, max_tokens=5, n=2, **wanted), "logprobs", what, code="invalid_value")
    assert ask(api, max_tokens=5, n=2, stream=True, **wanted).status_code == 200
    assert ask(api, max_tokens=900, n=16).status_code == 200


def test_the_default_length_of_a_chat_leaves_room_for_its_log_probabilities(api, monkeypatch):
    monkeypatch.setattr(generations, "MAX_LOGPROBS_TOLD", 4 * 3 * 2)
    assert api.chat(n=2, logprobs=True, top_logprobs=2).status_code == 200
    assert [generation.max_tokens for generation in api.service.generations] == [4, 4]


async def test_a_large_answer_is_sent_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "PIECE_BYTES", 1000)
    body = json.dumps({"prompt": "x", "max_tokens": 100, "logprobs": NUM_TOP}).encode()
    given: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return given.pop() if given else await asyncio.sleep(3600, {"type": "http.disconnect"})

    await Api().app(scope_of("/v1/completions"), receive, send := AsyncMock())
    sent = [call.args[0] for call in send.call_args_list]
    pieces = [message["body"] for message in sent[1:]]
    assert max(map(len, pieces)) == 1000
    assert dict(sent[0]["headers"])[b"content-length"] == str(sum(map(len, pieces))).encode()
    assert len(json.loads(b"".join(pieces))["choices"][0]["logprobs"]["tokens"]) == 100
