"""Streams are never silent for long: their header comes within a second, and comments or pings between events."""

import asyncio
import json
import selectors
from collections.abc import AsyncGenerator, Callable, Coroutine
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import pytest
from starlette.types import Message

from draft_node.http.answer import streams
from draft_node.parsing.parser import ONLY_CONTENT
from draft_node.service.output_processor import Piece
from goodspeed.errors import Busy, RequestRefused, ServiceError, VerifyAway
from tests.draft_node.http.fake import BODIES, Api, FakeService, anthropics, body_of, official, scope_of

COMMENT, PING = b": waiting\n\n", b'event: ping\ndata: {"type":"ping"}\n\n'


class Selector(selectors.DefaultSelector):
    """Skips the time until the loop's next timer."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(timeout and 0)
        if not found and timeout:
            self.now += timeout
        return found


class Loop(asyncio.SelectorEventLoop):
    """Its time is a number."""

    def __init__(self) -> None:
        self.clock = Selector()
        super().__init__(self.clock)

    def time(self) -> float:
        return self.clock.now


def timed(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        with asyncio.Runner(loop_factory=Loop) as runner:
            runner.run(test(*args, **kwargs))

    return run


class SlowService(FakeService):
    """Waits before each token, then fails if told to."""

    def __init__(self, *waits_s: float, error: ServiceError | None = None) -> None:
        super().__init__()
        self.waits_s, self.error = waits_s, error
        self.num_open = 0

    async def write(self, generation, parser=ONLY_CONTENT):
        self.num_open += 1
        waits = iter(self.waits_s)
        try:
            async for item in super().write(generation, parser):
                if isinstance(item, Piece):
                    await asyncio.sleep(next(waits, 0))
                yield item
        except ServiceError:
            await asyncio.sleep(next(waits, 0))
            raise
        finally:
            self.num_open -= 1


@dataclass
class User:
    """Asks for one stream, and notes when what of it came."""

    service: SlowService
    path: str = "completions"
    leaves_after_s: float = 1e9
    reads_after_s: float = 0.0  # the first event of a text
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    arrived: list[tuple[float, bytes]] = field(default_factory=list)

    async def ask(self) -> None:
        self._asked_at = asyncio.get_running_loop().time()
        body = json.dumps(body_of(self.path, stream=True)).encode()
        given: list[Message] = [{"type": "http.request", "body": body}]

        async def receive() -> Message:
            if given:
                return given.pop()
            now = asyncio.get_running_loop().time()
            return await asyncio.sleep(self._asked_at + self.leaves_after_s - now, {"type": "http.disconnect"})

        await Api(service=self.service).app(scope_of(f"/v1/{self.path}"), receive, self._take)

    async def _take(self, message: Message) -> None:
        now = asyncio.get_running_loop().time() - self._asked_at
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            self.arrived.append((now, b""))
        elif message["body"]:
            self.arrived.append((now, message["body"]))
            if self.reads_after_s and not self.is_idle(message["body"]):
                wait_s, self.reads_after_s = self.reads_after_s, 0.0
                await asyncio.sleep(wait_s)

    @staticmethod
    def is_idle(event: bytes) -> bool:
        return event in (COMMENT, PING)

    @property
    def idle(self) -> list[int]:
        """When comments or pings came."""
        return [round(at) for at, event in self.arrived if self.is_idle(event)]

    @property
    def events(self) -> list[bytes]:
        return [event for _, event in self.arrived if event and not self.is_idle(event)]


async def asked(service: SlowService, path: str = "completions", **options: Any) -> User:
    user = User(service, path, **options)
    await user.ask()
    assert service.num_open == 0
    return user


@pytest.mark.parametrize("path", BODIES)
@timed
async def test_a_stream_says_that_it_waits(path: str) -> None:
    user = await asked(SlowService(25.5, 0, 32), path)
    assert (user.status, user.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert user.arrived[0] == (streams.FIRST_S, b"")
    assert user.idle == [1, 11, 21, 36, 46, 56]
    assert {event for _, event in user.arrived if user.is_idle(event)} == {PING if path == "messages" else COMMENT}
    prompt = await asked(SlowService(), path)
    assert {at for at, _ in prompt.arrived} == {0.0}
    assert len(user.events) == len(prompt.events) > 3


@pytest.mark.parametrize(("waits_s", "reads_after_s"), [((0.9, 9.9, 9.9), 0.0), ((), 35.0)])
@timed
async def test_nothing_is_said_beside_what_comes_nor_to_a_user_who_reads_slowly(waits_s, reads_after_s):
    """An event may be sent in several pieces, which a comment must not part."""
    assert (await asked(SlowService(*waits_s), reads_after_s=reads_after_s)).idle == []


@timed
async def test_nothing_parts_an_event_that_comes_while_a_comment_is_taken_slowly() -> None:
    event, sent = b"a" * (2 * streams.PIECE_BYTES + 1), list[bytes]()

    async def events() -> AsyncGenerator[bytes, None]:
        yield b"first"
        await asyncio.sleep(streams.SILENT_S + 5.0)
        yield event

    async def send(message: Message) -> None:
        sent.append(message.get("body", b""))
        await asyncio.sleep(7.0)

    async def receive() -> Message:
        return await asyncio.sleep(1e6, {"type": "http.disconnect"})

    await streams.EventStream(events(), lambda error: b"", COMMENT)({}, receive, send)
    assert COMMENT in sent
    assert event in b"".join(sent)


@pytest.mark.parametrize("path", BODIES)
@timed
async def test_an_error_within_a_second_is_the_status(path: str) -> None:
    for error, status in ((Busy("not_promised", "x"), 429), (VerifyAway("verify_away", "x"), 503)):
        user = await asked(SlowService(0.9, error=error), path)
        assert user.status == (529 if (path, status) == ("messages", 503) else status)
        assert int(user.headers["retry-after"]) >= 1


@pytest.mark.parametrize(
    ("error", "code", "kind"),
    [
        (Busy("not_promised", "the reason"), "rate_limit_exceeded", "rate_limit_error"),
        (VerifyAway("verify_away", "the reason"), "server_error", "overloaded_error"),
        (RequestRefused("unsupported", "the reason"), "invalid_prompt", "invalid_request_error"),
    ],
)
@timed
async def test_a_later_error_is_an_event_of_the_apis_kind(error: ServiceError, code: str, kind: str) -> None:
    users = {path: await asked(SlowService(12, error=error), path) for path in BODIES}
    assert all((user.status, user.idle) == (200, [1, 11]) for user in users.values())
    for path in ("completions", "chat/completions"):
        failed, done = users[path].events[0].removesuffix(b"\n\n").split(b"\n\n")
        assert json.loads(failed.removeprefix(b"data: "))["error"]["code"] == error.code
        assert done == b"data: [DONE]"
    written = b"".join(users["responses"].events).decode().split("\n\n")[:-1]
    names = [event.partition("\n")[0].removeprefix("event: response.") for event in written]
    assert names == ["created", "in_progress", "failed"]
    last = json.loads(written[-1].partition("data: ")[2])
    assert (last["sequence_number"], last["response"]["error"]) == (2, {"code": code, "message": "the reason"})
    assert last["response"]["status"] == "failed"
    [event] = users["messages"].events
    name, data = event.decode().split("\n", 1)
    assert name == "event: error"
    assert json.loads(data.removeprefix("data: "))["error"] == {"type": kind, "message": "the reason"}


@pytest.mark.parametrize("leaves_after_s", [0.5, 5, 45])
@timed
async def test_a_user_who_leaves_during_the_silence_ends_the_text(leaves_after_s: float) -> None:
    service = SlowService(40, 1000)
    before = asyncio.all_tasks()
    user = await asked(service, leaves_after_s=leaves_after_s)
    assert asyncio.get_running_loop().time() == pytest.approx(leaves_after_s)
    assert len(user.events) <= 1
    assert asyncio.all_tasks() == before


@pytest.fixture
def restless(monkeypatch: pytest.MonkeyPatch) -> Api:
    """A node that says something between all events."""
    monkeypatch.setattr(streams, "FIRST_S", 0)
    monkeypatch.setattr(streams, "SILENT_S", 0)
    return Api(service=SlowService(0.001, 0.001, 0.001))


def test_the_official_client_overlooks_what_stands_between(restless: Api) -> None:
    assert ": waiting\n\n" in restless.complete(max_tokens=3, stream=True).text
    client: Any = official(restless)
    asked = {"model": "goodspeed", "stream": True}
    chunks: Any = client.completions.create(**asked, prompt="x", max_tokens=3)
    assert "".join(chunk.choices[0].text for chunk in chunks) == "abc"
    chunks = client.chat.completions.create(**asked, messages=[{"role": "user", "content": "x"}], max_tokens=3)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "abc"
    events: Any = client.responses.create(**asked, input="x", max_output_tokens=3)
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == "abc"
    with client.responses.stream(model="goodspeed", input="x", max_output_tokens=3) as stream:
        assert [event.type for event in stream][-1] == "response.incomplete"


@pytest.mark.clients
def test_anthropics_client_overlooks_what_stands_between(restless: Api) -> None:
    client = anthropics(restless)
    asked: Any = {"model": "goodspeed", "max_tokens": 3, "messages": [{"role": "user", "content": "x"}]}
    with client.messages.stream(**asked) as stream:
        assert "".join(stream.text_stream) == "abc"
    assert "ping" not in [event.type for event in client.messages.create(**asked, stream=True)]
