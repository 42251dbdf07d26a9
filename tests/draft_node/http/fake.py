"""A service without nodes: writes the alphabet, fails when told to, and keeps what it was asked for."""

import atexit
import json
import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from types import SimpleNamespace
from typing import Any, cast

import openai
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from starlette.testclient import TestClient

from draft_node.config import DraftConfig
from draft_node.core.counts import Statistics
from draft_node.core.generation import Generation
from draft_node.core.request_queue import RequestQueue
from draft_node.http.app import create_app
from draft_node.parsing.formats import Content
from draft_node.parsing.parser import ONLY_CONTENT, ParserSettings
from draft_node.service.chat_support import ChatSupport
from draft_node.service.output_buffer import OutputBuffer
from draft_node.service.output_processor import Begun, Ended, Item, Piece
from draft_node.service.request_stats import RequestStats
from draft_node.service.service import Service, answer_queue, body_queue
from draft_node.service.slo_tiers import SloTiers
from draft_node.service.token_text import PromptTokens, Token, TokenText, TokenTexts
from goodspeed.constraint.compiling import Constraints
from goodspeed.engine.tokenizing import tokenizer_folder
from goodspeed.engine.tokenizing.text import NOTHING, Inputs
from goodspeed.errors import PromptError, ServiceError
from goodspeed.serving.api_keys import Keys
from goodspeed.slo.attainment import Kept
from goodspeed.slo.objectives import Objectives
from goodspeed.wire.handshake import Defaults, SloTerms
from goodspeed.wire.messages import Constraint, Sampling, TokenLogprobs
from tests.draft_node.service.test_slo_tiers import levels

CONTEXT_LEN = 1000
CONSTRAINTS = Constraints(tokenizer_folder.load("tiny-target"))
LETTERS = "abcdefghijklmnopqrstuvwxyz"
KEY = "the-key-itself"
USER = {"role": "user", "content": "hi"}
BODIES: dict[str, dict[str, Any]] = {
    "completions": {"prompt": "hi"},
    "chat/completions": {"messages": [USER]},
    "responses": {"input": "hi"},
    "messages": {"messages": [USER]},
}
"""What each API needs to write a text, by its path."""


def body_of(path: str, max_tokens: int = 3, **body: Any) -> dict[str, Any]:
    """The body that asks the API at this path for a text of so many tokens."""
    limit = "max_output_tokens" if path == "responses" else "max_tokens"
    return {limit: max_tokens, **BODIES[path], **body}


def scope_of(path: str, host: str = "127.0.0.1") -> dict[str, Any]:
    """Returns what a server tells an application of a request with JSON in it."""
    line = {"type": "http", "method": "POST", "path": path, "query_string": b""}
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    return {**line, "headers": headers, "client": (host, 1)}


class Bytes(TokenTexts):
    """A token is a byte."""

    def __init__(self) -> None:
        pass

    def __getitem__(self, token_id: int) -> TokenText:
        return TokenText(chr(token_id), bytes([token_id]))


class FakeService(Service):
    """A token is a byte; the text of every choice is the alphabet, over and over."""

    # What the service asks its daemon and its checkpoint for; there are none here.
    is_ready: bool = True
    context_len: int = CONTEXT_LEN
    vocab_size: int = 256
    eos_ids: tuple[int, ...] = (0, 1)
    max_chars: int = 2 * CONTEXT_LEN
    absence: str = "the verify node has been away for 9 s; ask again later"
    target_name: str | None = "big-model"
    target_fingerprint: str | None = "b1"
    draft_model: str = "small-model"
    draft_fingerprint: str = "d1"
    chats: ChatSupport = ChatSupport()

    def __init__(self) -> None:
        self.queue = RequestQueue(16)
        self._daemon = cast(Any, SimpleNamespace(core=SimpleNamespace(queue=self.queue)))
        self.max_waiting = 256
        self.draining = False
        self.tokenizer = cast(Any, self)  # it encodes and decodes itself
        self.num_encoded = 0
        self.stats = RequestStats()
        self.outputs = set[OutputBuffer]()
        self.bodies, self.answers = body_queue(), answer_queue()
        self.compiler = cast(Any, SimpleNamespace(check=self.check_constraint))
        self._secret = secrets.token_bytes(32)
        self.completion_defaults = self.chat_defaults = Defaults()
        self.users: set[str] = set()
        self.prompts: list[str] = []  # of chats, as the template wrote them
        self.generations: list[Generation] = []
        self.parser: ParserSettings | None = None  # the latest text's
        self.error: Exception | None = None
        self.fails_after = 0  # tokens
        self.known_levels = levels(SloTerms())
        self.cached: list[int] = []  # tokens of the prompt that each next text finds in memory
        self.slow_choices = 0  # texts whose objectives are missed

    @property
    def slo_tiers(self) -> SloTiers:
        return self.known_levels

    def _kept(self, slo: Objectives) -> Kept:
        self.slow_choices -= 1
        is_slow = self.slow_choices >= 0
        tpot_s = 0.09 if is_slow else 0.01
        return Kept(slo, "slow" if is_slow else "attained", 0.4, tpot_s, 2 * tpot_s)

    async def write(self, generation: Generation, parser: ParserSettings = ONLY_CONTENT) -> AsyncGenerator[Item, None]:
        self.generations.append(generation)
        self.parser = parser
        yield Begun(self.target_fingerprint)
        if generation.num_prompt_logprobs is not None:
            yield Piece((), prompt=self.prompt(generation))
        for index in range(generation.max_tokens):
            if self.error is not None and index >= self.fails_after:
                raise self.error
            letter = LETTERS[index % 26]
            yield Piece((Content(letter),), (self.token(letter, generation.num_logprobs),))
        statistics = Statistics(num_rounds=2, num_drafted=3, num_accepted=1)
        statistics.num_cached = self.cached.pop(0) if self.cached else 0
        statistics.drafted.update(ngram=2, model=1)
        statistics.accepted.update(ngram=1)
        kept = self._kept(generation.slo) if generation.slo is not None else None
        yield Ended("length", None, generation.max_tokens, statistics, kept)

    @staticmethod
    def prompt(generation: Generation) -> PromptTokens:
        """Each token after the first has -1.5, and the likeliest is the one before it in the alphabet, with -0.5."""
        num_top = generation.num_prompt_logprobs or 0
        told = [TokenLogprobs(-1.5, (token - 1,)[:num_top], (-0.5,)[:num_top]) for token in generation.prompt[1:]]
        return PromptTokens(generation.prompt, tuple(told), Bytes())

    @staticmethod
    def token(letter: str, num_logprobs: int | None) -> Token:
        if num_logprobs is None:
            return Token(ord(letter), letter, letter.encode())
        others = [Token(i, LETTERS[i], LETTERS[i].encode(), -0.5 - i) for i in range(num_logprobs)]
        return Token(ord(letter), letter, letter.encode(), -0.25, tuple(others))

    async def check_constraint(self, constraint: Constraint, user: str) -> None:
        CONSTRAINTS.get(constraint)

    async def encode(self, text: str, user: str) -> tuple[int, ...]:
        if not text:
            raise PromptError("the prompt is empty; give at least one character")
        self.num_encoded += 1
        self.users.add(user)
        return tuple(text.encode())

    async def encode_chat(
        self, messages: Sequence[Mapping[str, Any]], user: str, inputs: Inputs = NOTHING
    ) -> tuple[int, ...]:
        if any(message["content"] == "no template" for message in messages):
            raise PromptError("this tokenizer has no chat template; send a plain prompt, or use a model made for chat")
        self.num_encoded += 1
        self.users.add(user)
        self.prompts.append("".join(f"{message['role']}:{message['content']};" for message in messages))
        return tuple(self.prompts[-1].encode())

    def defaults(self, *, chat: bool) -> Defaults:
        return self.chat_defaults if chat else self.completion_defaults

    async def decode(self, token_ids: Sequence[int], user: str) -> str:
        self.users.add(user)
        return bytes(token_ids).decode()


@cache
def _event_loop() -> BlockingPortal:
    ends = ExitStack()
    atexit.register(ends.close)
    return ends.enter_context(start_blocking_portal())


class Client(TestClient):
    """A client of an application in this process.

    All requests run in one event loop, as a node's do. `TestClient` has one for each: work that a queue ends only after
    the answer would never end, and the next request would wait for it.
    """

    def __init__(self, app: Any, **options: Any) -> None:
        super().__init__(app, **options)
        self.portal = _event_loop()


def official(api: "Api", api_key: str = "none") -> openai.OpenAI:
    """The official client of an application in this process."""
    http = Client(api.app, base_url="http://testserver/v1")
    return openai.OpenAI(base_url="http://testserver/v1", api_key=api_key, http_client=http, max_retries=0)


def anthropics(api: "Api") -> Any:
    """Anthropic's official client of an application in this process; who has not installed it skips the test."""
    anthropic = pytest.importorskip("anthropic")
    http = Client(api.app)
    return anthropic.Anthropic(base_url="http://testserver", api_key="none", http_client=http, max_retries=0)


class Api:
    """The application around such a service, and a client of it."""

    def __init__(self, *, keys: Keys | None = None, service: FakeService | None = None, **options: Any) -> None:
        self.service = service or FakeService()
        self.config = DraftConfig(**{"model": "tiny-draft-s", "http": "127.0.0.1:0"} | options)
        self.service.queue.num_slots, self.service.max_waiting = self.config.max_sessions, self.config.http_max_waiting
        self.app = create_app(self.service, self.config, lambda: (b"metrics 1\n", "text/plain"), keys)
        self.client = Client(self.app)

    @property
    def prompt(self) -> str:
        """The newest prompt of a chat."""
        return self.service.prompts[-1]

    def complete(self, **body: Any) -> Any:
        return self.client.post("/v1/completions", json={"prompt": "hello", **body})

    def chat(self, **body: Any) -> Any:
        return self.client.post("/v1/chat/completions", json={"messages": [USER], **body})

    def ask(self, path: str, max_tokens: int = 3, **body: Any) -> Any:
        return self.client.post(f"/v1/{path}", json=body_of(path, max_tokens, **body))

    def queue(self, num_texts: int, user: str = "testclient") -> None:
        """Has another request's texts in the queue, for as long as the service lasts."""
        for _ in range(num_texts):
            request = Generation(secrets.token_bytes(16), (1,), Sampling(), max_tokens=9, user=user)
            self.service.queue.add(cast(Any, SimpleNamespace(request=request, done=False, tokens=())))
        self.service.queue.admit(0.0)

    def fail(self, error: ServiceError | Exception, after: int = 0) -> None:
        self.service.error, self.service.fails_after = error, after


def error_of(answer: Any, status: int = 400) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    error: dict[str, Any] = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    return error


def keyed() -> Api:
    """An application for those who have `KEY`."""
    return Api(keys=Keys([KEY]))


def refused(answer: Any, param: str, what: str = "", *, code: str | None = None) -> str:
    """Returns the message of an answer that refuses this parameter, with these words and this code if given."""
    error = error_of(answer)
    assert error["param"] == param
    assert code in (None, error["code"])
    assert what in error["message"]
    message: str = error["message"]
    return message


def ignored_of(answer: Any) -> list[str]:
    """The names of what was ignored in a request that was served."""
    assert answer.status_code == 200, answer.text
    return [name for name in answer.headers.get("X-GoodSpeed-Ignored", "").split(", ") if name]


def named_events_of(answer: Any) -> list[dict[str, Any]]:
    """The events of a stream in which each says its own name."""
    *written, end = answer.text.split("\n\n")
    assert end == ""
    events = []
    for each in written:
        name, data = each.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    return events


def events_of(answer: Any) -> list[str]:
    """The data of all events."""
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = answer.text.split("\n\n")
    assert events.pop() == ""
    assert all(event.startswith("data: ") for event in events)
    return [event.removeprefix("data: ") for event in events]


def chunks_of(answer: Any) -> list[dict[str, Any]]:
    """The chunks of a stream of OpenAI's older APIs, up to its end."""
    *events, done = events_of(answer)
    assert done == "[DONE]"
    return [json.loads(event) for event in events]
