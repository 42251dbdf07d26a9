"""A load generator for `/v1/completions` that costs little: bytes and times while it streams, everything else after.

Each request is a user with a connection of its own.
"""

import asyncio
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

ANSWER_TIMEOUT_S = 120.0


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

    @property
    def per_token_s(self) -> float:
        """Seconds per token after the first piece."""
        return (self.pieces_s[-1] - self.pieces_s[0]) / max(1, self.num_tokens - 1)


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
        return Answer(text, num_tokens, tuple(pieces_s))


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
    request, arrived = encode(address, body), list[tuple[float, bytes]]()
    await asyncio.sleep(due - time.perf_counter())
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(address.host, address.port)
            try:
                writer.write(request)
                while data := await reader.read(1 << 16):
                    arrived.append((time.perf_counter(), data))
            finally:
                writer.transport.abort()
    except OSError as error:  # TimeoutError is one
        return Sent(due, arrived, f"{type(error).__name__} after {len(arrived)} arrivals: {error}")
    return Sent(due, arrived)


def encode(address: Address, body: dict[str, Any]) -> bytes:
    """Returns a request of HTTP/1.0, whose answer comes without chunks."""
    payload = json.dumps({**body, "stream": True, "stream_options": {"include_usage": True}}).encode()
    lines = ["POST /v1/completions HTTP/1.0", f"Host: {address.host}:{address.port}"]
    lines += ["Content-Type: application/json", f"Content-Length: {len(payload)}", "", ""]
    return "\r\n".join(lines).encode() + payload


def events(arrived: Sequence[tuple[float, bytes]]) -> list[tuple[float, str]]:
    """Returns (time, data) of each server-sent event, without comments. BadAnswer where the response is none."""
    whole = b"".join(data for _, data in arrived)
    head, mark, _ = whole.partition(b"\r\n\r\n")
    if not mark or not head.startswith(b"HTTP/1.1 200 "):
        raise BadAnswer(f"answered with {whole[:500].decode(errors='replace')!r}")
    found, text, left = [], b"", len(head) + len(mark)
    for at, data in arrived:
        text += data[left:]
        left = max(0, left - len(data))
        *complete, text = text.split(b"\n\n")
        found += [(at, event.removeprefix(b"data: ").decode()) for event in complete if not event.startswith(b":")]
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
