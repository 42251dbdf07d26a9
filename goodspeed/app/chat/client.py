"""An HTTP client of a node: lists its models, and streams answers. Every failure is a ChatError."""

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import TypeVar

import httpx2
import msgspec

from goodspeed.app.chat.options import KEY_VARIABLE, Door
from goodspeed.app.chat.plain import line
from goodspeed.app.chat.wire import Chunk, ErrorBody, ModelList
from goodspeed.errors import ChatError

T = TypeVar("T")

TIMEOUT = httpx2.Timeout(10.0, read=600.0)
"""The read timeout is long because a text may wait in the node's queue."""

MAX_REFUSAL_BYTES = 1 << 16


class Client:
    """Use it in a `with` statement; leaving a stream early makes the node end the answer."""

    def __init__(self, door: Door, transport: httpx2.BaseTransport | None = None) -> None:
        self.url = door.url
        self._has_key = door.key is not None
        headers = {"Authorization": f"Bearer {door.key}"} if door.key is not None else {}
        self._http = httpx2.Client(base_url=door.url, headers=headers, timeout=TIMEOUT, transport=transport)

    def __enter__(self) -> "Client":
        self._http.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._http.__exit__(kind, error, traceback)

    def models(self) -> list[str]:
        """Returns the names of the served models; at least one."""
        with self._errors(), self._http.stream("GET", "/v1/models") as response:
            self._check(response)
            names = [model.id for model in self._parse(_read(response), ModelList).data]
        if not names:
            raise ChatError(f"{self.url} serves no model")
        return names

    @contextmanager
    def stream(self, request: Mapping[str, object]) -> Generator[Iterator[Chunk], None, None]:
        """Yields an iterator over an answer's chunks; ChatError if the stream ends without the node's end mark."""
        with self._errors(), self._http.sse("/v1/chat/completions", method="POST", json=request) as source:
            self._check(source.response)
            yield self._chunks(source)

    def _chunks(self, source: httpx2.EventSource) -> Iterator[Chunk]:
        for event in source:
            if event.data == "[DONE]":
                return
            chunk = self._parse(event.data.encode("utf-8", "replace"), Chunk)
            if chunk.error is not None:
                raise ChatError(f"{self.url} broke the answer off: {line(chunk.error.message)}")
            yield chunk
        raise ChatError(f"{self.url} broke the answer off without saying why; look at the node's log")

    def _parse(self, body: bytes, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(body, type=kind)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ChatError(f"{self.url} does not speak the OpenAI API: {line(str(error))}") from None

    def _check(self, response: httpx2.Response) -> None:
        """Raises ChatError for every status but 200."""
        status = response.status_code
        if status == 200:
            return
        try:
            what = line(msgspec.json.decode(_read(response), type=ErrorBody).error.message)
        except (msgspec.DecodeError, RecursionError):
            what = f"{line(response.reason_phrase) or 'no reason given'}; is it a draft node's --http?"
        if status == 401:
            wrong = "does not know this API key" if self._has_key else "wants an API key"
            raise ChatError(f"{self.url} {wrong}; name a file with one by --api-key FILE, or set {KEY_VARIABLE}")
        if status in (429, 503):
            state = "is busy" if status == 429 else "cannot answer now"
            raise ChatError(f"{self.url} {state} ({status}): {what}{_retry(response)}")
        raise ChatError(f"{self.url} answered {status}: {what}")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turns the network's errors into ChatErrors."""
        try:
            yield
        except httpx2.ConnectError as error:
            raise ChatError(f"{self.url} cannot be reached ({error}); does a draft node serve there?") from None
        except httpx2.TimeoutException:
            raise ChatError(f"{self.url} does not answer in time; does a draft node serve there?") from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise ChatError(f"the connection to {self.url} broke: {line(str(error)) or type(error).__name__}") from None


def _read(response: httpx2.Response) -> bytes:
    """Returns a response's body, cut to a maximum length."""
    body = b""
    for part in response.iter_bytes():
        body += part
        if len(body) >= MAX_REFUSAL_BYTES:
            break
    return body[:MAX_REFUSAL_BYTES]


def _retry(response: httpx2.Response) -> str:
    after = response.headers.get("retry-after", "")
    return f" (try again in {after} s)" if after.isdecimal() else ""
