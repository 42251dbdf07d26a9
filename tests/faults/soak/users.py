"""The users who want texts, one after another, from one draft node each, as streams over HTTP.

They ask until told to stop, think a moment between two texts, and some go away in mid-stream. What they get is put down
in `Text`s; what that is worth is judged elsewhere.
"""

import asyncio
import json
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field, replace

import httpx2

from goodspeed.embedded import prompts
from tests.faults.soak.judging import Text
from tests.faults.soak.plan import Role
from tests.faults.texts import SAMPLINGS, Wanted
from tests.nodes import Event

NUM_WANTED = 40
"""Different prompts: what the target alone writes is computed once for each text."""

LENGTHS = (20, 80)
LEAVING_SHARE = 0.08
THINKING_S = 1.0
RETRY_S = 0.5


def pool(seed: int) -> list[Wanted]:
    """Texts of every domain, greedy and sampled in several ways."""
    held_out = prompts.load()
    chosen = random.Random(seed).sample(range(len(held_out)), NUM_WANTED)
    return [Wanted(held_out[i].prompt, LENGTHS[1], SAMPLINGS[n % len(SAMPLINGS)]) for n, i in enumerate(chosen)]


@dataclass
class Desk:
    """A record of the texts while they are written; it hands them over when they have ended."""

    clock: Callable[[], float]
    on_end: Callable[[Text], None]
    on_refusal: Callable[[Text, str], None]  # with the reason
    running: dict[int, Text] = field(default_factory=dict)
    num_asked: int = 0
    is_open: bool = True  # texts are asked for

    def begin(self, role: Role, wanted: Wanted) -> tuple[int, Text]:
        text = Text(role.name, role.rule, wanted, self.clock())
        self.num_asked += 1
        self.running[self.num_asked] = text
        return self.num_asked, text

    def end(self, number: int) -> None:
        if text := self.running.pop(number, None):
            self.on_end(text)

    def not_let_in(self, number: int, why: str) -> None:
        """A text that was never begun; its user asks again."""
        if text := self.running.pop(number, None):
            self.on_refusal(text, why)


class NotLetInError(Exception):
    """The node does not take the text now."""


class HttpUser:
    """A user who asks for one text at a time, over and over."""

    def __init__(self, role: Role, url: str, wanted: list[Wanted], desk: Desk, seed: str) -> None:
        self._role, self._url, self._wanted, self._desk = role, url, wanted, desk
        self._rng = random.Random(seed)

    async def ask_on(self) -> None:
        patience = httpx2.Timeout(None, connect=5.0)
        fresh = httpx2.Limits(max_keepalive_connections=0)  # one that is kept may be closed when it is to be used again
        async with httpx2.AsyncClient(timeout=patience, limits=fresh, trust_env=False) as client:
            while self._desk.is_open:
                await asyncio.sleep(self._rng.expovariate(1 / THINKING_S))
                if not await self._ask(client):
                    await asyncio.sleep(RETRY_S)

    async def _ask(self, client: httpx2.AsyncClient) -> bool:
        """Asks for one text, and reads it to its end; False when it was not let in."""
        wanted = replace(self._rng.choice(self._wanted), max_tokens=self._rng.randint(*LENGTHS))
        leaves_after = self._rng.randrange(wanted.max_tokens) if self._rng.random() < LEAVING_SHARE else None
        number, text = self._desk.begin(self._role, wanted)
        try:
            await self._read(client, text, leaves_after)
        except NotLetInError as error:
            self._desk.not_let_in(number, str(error))
            return False
        except (httpx2.HTTPError, OSError) as error:
            if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
                self._desk.not_let_in(number, "unreachable")
                return False
            text.end("broke", repr(error), self._desk.clock())
        finally:
            self._desk.end(number)
        return True

    async def _read(self, client: httpx2.AsyncClient, text: Text, leaves_after: int | None) -> None:
        async with aclosing(_chunks(client, self._url, text.wanted)) as chunks:
            async for chunk in chunks:
                if "error" in chunk and not text.tokens:  # the stream's header went before the refusal
                    raise NotLetInError(chunk["error"]["code"])
                if "error" in chunk:
                    text.end("broke", str(chunk["error"]), self._desk.clock())
                    return
                for choice in chunk["choices"]:
                    text.tokens += (choice.get("logprobs") or {}).get("tokens") or []
                    if choice.get("finish_reason"):
                        text.end("finished", choice["finish_reason"], self._desk.clock())
                if leaves_after is not None and len(text.tokens) > leaves_after:
                    text.end("left", "", self._desk.clock())
                    return
        text.end("broke", "the stream ended without a word", self._desk.clock())


async def _chunks(client: httpx2.AsyncClient, url: str, wanted: Wanted) -> AsyncGenerator[Event, None]:
    """Events of one stream, an error that breaks it among them."""
    sampling = wanted.sampling
    body = {
        "prompt": wanted.prompt,
        "max_tokens": wanted.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "seed": sampling.seed,
        "logprobs": 0,
        "ignore_eos": True,
        "stream": True,
    }
    async with client.stream("POST", f"{url}/v1/completions", json=body) as answer:
        if answer.status_code != 200:
            error = json.loads(await answer.aread())["error"]
            raise NotLetInError(f"{answer.status_code} {error['code']}")
        async for line in answer.aiter_lines():
            data = line.removeprefix("data: ")
            if data != line and data != "[DONE]":  # other lines are blank, or comments
                yield json.loads(data)
