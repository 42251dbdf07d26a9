"""A load generator for `/v1/completions` that costs little: bytes and times while it streams, everything else after.

Each request is a user with a connection of its own.
"""

import asyncio
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

ANSWER_TIMEOUT_S = 60.0
CLOSED = {"Connection": "close", "Content-Type": "application/json"}


class BadAnswer(Exception):
    """A response is no complete answer; the message says why."""


@dataclass(frozen=True)
class Address:
    host: str
    port: int

    @classmethod
    def of(cls, url: str) -> "Address":
        parts = urlsplit(url)
        return cls(parts.hostname or "", parts.port or 80)


@dataclass(frozen=True)
class Answer:
    """One complete stream. Times are seconds since the request was due."""

    text: str
    num_tokens: int
    pieces_s: tuple[float, ...]  # when each piece of text came
    ended_s: float

    @property
    def per_token_s(self) -> float:
        """Seconds per token after the first piece."""
        return (self.pieces_s[-1] - self.pieces_s[0]) / max(1, self.num_tokens - 1)


class Stream(asyncio.Protocol):
    """Sends one request and keeps what comes back, with the time of each arrival."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self.arrived: list[tuple[float, bytes]] = []
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self.arrived.append((time.perf_counter(), data))

    def connection_lost(self, error: Exception | None) -> None:
        if not self.over.done():
            self.over.set_result(None)


@dataclass(frozen=True)
class Sent:
    """One request and its raw response, parsed after all are over, so that parsing takes no time from the others."""

    due: float
    arrived: Sequence[tuple[float, bytes]]
    failure: str = ""

    def answer(self, num_tokens: int) -> Answer:
        """Returns the answer; BadAnswer unless it is complete and has num_tokens."""
        if self.failure:
            raise BadAnswer(self.failure)
        text, reason, told, last = "", None, None, ""
        pieces_s: list[float] = []
        for at, event in events(self.arrived):
            last = event
            chunk = {} if event == "[DONE]" else json.loads(event)
            if "error" in chunk:
                raise BadAnswer(f"the stream broke: {chunk['error']['message']}")
            for choice in chunk.get("choices", ()):
                if choice["text"]:
                    text += choice["text"]
                    pieces_s.append(at - self.due)
                reason = choice["finish_reason"] or reason
            told = chunk.get("usage") or told
        if last != "[DONE]" or reason is None or told is None or told["completion_tokens"] != num_tokens:
            raise BadAnswer(f"it ended with {last!r}, finish reason {reason}, usage {told}; {num_tokens} tokens wanted")
        if not pieces_s:
            raise BadAnswer("no text came")
        return Answer(text, num_tokens, tuple(pieces_s), self.arrived[-1][0] - self.due)


async def send_all(
    addresses: Sequence[Address], bodies: Sequence[dict[str, Any]], due: Sequence[float] | None = None
) -> list[Sent]:
    """Sends to the addresses in turn, each body when it is due, in seconds from now; None: all at once."""
    now = time.perf_counter()
    sending = [
        send(addresses[i % len(addresses)], body, now + (due[i] if due else 0.0)) for i, body in enumerate(bodies)
    ]
    return await asyncio.gather(*sending)


async def send(address: Address, body: dict[str, Any], due: float) -> Sent:
    """Sends a request at `due`, by `time.perf_counter`."""
    request = encode(address, body)
    await asyncio.sleep(due - time.perf_counter())
    stream = Stream(request)
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            transport, _ = await asyncio.get_running_loop().create_connection(
                lambda: stream, address.host, address.port
            )
            try:
                await stream.over
            finally:
                transport.abort()
    except OSError as error:  # TimeoutError is one
        return Sent(due, stream.arrived, f"{type(error).__name__} after {len(stream.arrived)} arrivals: {error}")
    return Sent(due, stream.arrived)


def encode(address: Address, body: dict[str, Any]) -> bytes:
    payload = json.dumps({**body, "stream": True, "stream_options": {"include_usage": True}}).encode()
    headers = {"Host": f"{address.host}:{address.port}", **CLOSED, "Content-Length": str(len(payload))}
    lines = ["POST /v1/completions HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode() + payload


@dataclass
class _Body:
    """Parses a chunked body, and keeps the time of each arrival."""

    left: bytes = b""
    chunks: list[tuple[float, bytes]] = field(default_factory=list)

    def take(self, at: float, data: bytes) -> None:
        self.left += data
        while True:
            size, mark, rest = self.left.partition(b"\r\n")
            end = int(size, 16) if mark else 0
            if not mark or len(rest) < end + 2:
                return
            self.chunks.append((at, rest[:end]))
            self.left = rest[end + 2 :]


def events(arrived: Sequence[tuple[float, bytes]]) -> list[tuple[float, str]]:
    """Returns (time, data) of each server-sent event. BadAnswer where the response is none, or is cut off."""
    head, body = b"", _Body()
    for at, data in arrived:
        if b"\r\n\r\n" in head:
            body.take(at, data)
            continue
        head += data
        _, mark, rest = head.partition(b"\r\n\r\n")
        if mark:
            body.take(at, rest)
    if not head.startswith(b"HTTP/1.1 200 "):
        what = b"".join(data for _, data in arrived)
        raise BadAnswer(f"answered with {what[:500].decode(errors='replace')!r}")
    found, text = [], b""
    for at, chunk in body.chunks:
        *whole, text = (text + chunk).split(b"\n\n")
        found += [(at, event.removeprefix(b"data: ").decode()) for event in whole]
    return found


def poisson(rate: float, duration_s: float, seed: int) -> list[float]:
    """Returns the times of a Poisson process, in seconds from the beginning; at least one."""
    dice = random.Random(seed)
    due: list[float] = []
    at = dice.expovariate(rate)
    while at < duration_s or not due:
        due.append(at)
        at += dice.expovariate(rate)
    return due
