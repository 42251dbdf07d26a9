"""A user for `disturbed.py` who always has a new long prompt at a draft node, and wants one token of each."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import httpx2

from goodspeed.app.demo.processes import Event
from goodspeed.embedded.prompts import load
from goodspeed.engine.tokenizing import tokenizer_folder
from goodspeed.engine.tokenizing.text import decode, encode_prompt

PROMPT_S = 600.0
"""The longest that a prompt may take."""


@dataclass
class Greedy:
    """The user of the draft node at `url`."""

    texts: Iterator[str]
    url: str
    failed: str | None = None
    _asking: asyncio.Task[list[float]] | None = None

    async def ask(self, is_on: bool) -> Event:
        """Begins to ask, or ends when the prompt under way is done; returns the times to the first token."""
        if is_on:
            self._asking = asyncio.create_task(self._ask())
            return {}
        if self._asking is None:
            return {}
        asking, self._asking = self._asking, None
        return {"prompt_ttfts_s": await asyncio.wait_for(asking, PROMPT_S)}

    async def _ask(self) -> list[float]:
        times: list[float] = []
        async with httpx2.AsyncClient(timeout=PROMPT_S, trust_env=False) as client:
            while self.failed is None and (not times or self._asking is asyncio.current_task()):
                asked_at = time.monotonic()
                body = {"prompt": next(self.texts), "max_tokens": 1}
                answer = await client.post(f"{self.url}/v1/completions", json=body)
                if answer.status_code != 200:
                    self.failed = answer.text
                times.append(time.monotonic() - asked_at)
        return times


def long_prompts(target: str, num_tokens: int) -> Iterator[str]:
    """Yields texts of about so many tokens, of which none begins like another."""
    tokenizer = tokenizer_folder.load(target).tokenizer
    ids = encode_prompt(tokenizer, " ".join(one.prompt for one in load()))
    ids = ids * (2 + num_tokens // len(ids))
    for number in count():
        first = encode_prompt(tokenizer, f"{number}. ")
        yield decode(tokenizer, [*first, *ids[number : number + num_tokens - len(first)]])
