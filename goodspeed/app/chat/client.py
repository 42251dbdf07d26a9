"""A client of a draft node's OpenAI API. Control characters in a node's text never reach the terminal."""

import contextlib
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx2
from pydantic import BaseModel, ValidationError

from goodspeed.app.chat.options import KEY_VARIABLE, Door
from goodspeed.errors import ChatError
from goodspeed.serving.web.bodies import ChatChunk, ErrorBody, ModelList
from goodspeed.serving.web.guards import is_local

M = TypeVar("M", bound=BaseModel)

TIMEOUT = httpx2.Timeout(10.0, read=600.0)
"""The read timeout is long, because a text may wait in the node's queue."""

LOOK_S = 10.0
"""Timeout of the first request. It is short: a server that is not a node may never answer."""


def safe(text: str) -> str:
    """Returns text with control and unprintable characters escaped as in a Python string."""
    return "".join(
        char if char.isprintable() or char in "\n\t\xa0\u200d" else char.encode("unicode_escape").decode()
        for char in text
    )


def one_line(text: str) -> str:
    return safe(" ".join(text[:500].split()))


@dataclass
class Client:
    """An HTTP client of a node. Every failure raises a ChatError."""

    door: Door

    def __post_init__(self) -> None:
        headers = {"Authorization": f"Bearer {self.door.key}"} if self.door.key is not None else {}
        through_proxies = not is_local(urlsplit(self.door.url).netloc)  # a proxy may be on another machine
        try:
            self.http = httpx2.Client(
                base_url=self.door.url,
                headers=headers,
                timeout=TIMEOUT,
                verify=httpx2.create_ssl_context(),
                trust_env=through_proxies,
            )
        except (ImportError, ValueError) as error:  # e.g. SOCKS without its package
            what = one_line(str(error))
            raise ChatError(f"the proxy of the environment (ALL_PROXY, ...) cannot be used: {what}") from None

    def model(self, wanted: str | None) -> str:
        """Returns the served model to use. wanted: its name, ChatError if not served; None: the first."""
        with self._errors(), self.http.stream("GET", "/v1/models", timeout=LOOK_S) as response:
            self._check(response)
            names = [model.id for model in self._parse(response.read(), ModelList).data]
        if not names:
            raise ChatError(f"{self.door.url} serves no model")
        if wanted is not None and wanted not in names:
            served = one_line(", ".join(names))
            raise ChatError(f"{self.door.url} does not serve the model {wanted!r}; it serves {served}")
        return wanted or names[0]

    def stream(self, request: dict[str, Any]) -> Generator[ChatChunk, None, None]:
        """Yields an answer's chunks; closing the iterator cancels the answer at the node."""
        with self._errors(), self.http.sse("/v1/chat/completions", method="POST", json=request) as source:
            self._check(source.response)
            for event in source:
                if event.data == "[DONE]":
                    return
                if event.data.startswith('{"error"'):
                    what = self._parse(event.data.encode(), ErrorBody).error.message
                    raise ChatError(f"{self.door.url} ended the answer early: {one_line(what)}")
                yield self._parse(event.data.encode("utf-8", "replace"), ChatChunk)
            raise ChatError(f"{self.door.url} ended the answer early without a reason; see the node's log")

    def _parse(self, body: bytes, kind: type[M]) -> M:
        try:
            return kind.model_validate_json(body)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            what = one_line(f"{where}: {first['msg']}")
            raise ChatError(f"{self.door.url} does not answer as a draft node does: {what}") from None

    def _check(self, response: httpx2.Response) -> None:
        """Raises ChatError for a status other than 200."""
        status = response.status_code
        if status == 200:
            return
        try:
            what = one_line(ErrorBody.model_validate_json(response.read()).error.message)
        except ValidationError:
            what = f"{one_line(response.reason_phrase) or 'no reason given'}; is it a draft node's --http?"
        hint = f"; name a file with a key by --api-key FILE, or set {KEY_VARIABLE}" if status == 401 else ""
        after = response.headers.get("retry-after", "")
        again = f" (try again in {after} s)" if after.isdecimal() else ""
        raise ChatError(f"{self.door.url} answered {status}: {what}{hint}{again}")

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Turns network errors into ChatErrors."""
        try:
            yield
        except (httpx2.ConnectError, UnicodeError) as error:  # UnicodeError: no host can have that name
            raise ChatError(f"{self.door.url} cannot be reached ({error}); does a draft node serve there?") from None
        except httpx2.TimeoutException:
            raise ChatError(f"{self.door.url} does not answer in time; does a draft node serve there?") from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            what = one_line(str(error)) or type(error).__name__
            raise ChatError(f"the connection to {self.door.url} broke: {what}") from None
