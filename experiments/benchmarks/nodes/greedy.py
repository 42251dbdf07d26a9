"""A user for `disturbed.py` who always has a new long prompt at a draft node, and wants one token of each."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from goodspeed.app.demo.processes import Child, Event
from goodspeed.embedded.prompts import load
from goodspeed.engine.tokenizing import tokenizer_folder
from goodspeed.engine.tokenizing.text import decode, encode_prompt
from goodspeed.serving import prompts
from goodspeed.serving.prompts import Prompt

PROMPT_S = 600.0
"""The longest that a prompt may take."""


@dataclass
class Greedy:
    """The user; `hear` gets the events of the draft node, which is `child` once it has started."""

    texts: Iterator[str]
    child: Child | None = None
    failed: str | None = None
    _first_at: float = 0.0  # when the newest text's first token came
    _done: asyncio.Event = field(default_factory=asyncio.Event)
    _asking: asyncio.Task[list[float]] | None = None

    def hear(self, event: Event) -> None:
        if event["event"] == "tokens":
            self._first_at = event["at"]
        if event["event"] == "fail":
            self.failed = event["what"]
        if event["event"] in ("finish", "fail"):
            self._done.set()

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
        assert self.child is not None
        times: list[float] = []
        while not times or self._asking is asyncio.current_task():
            self._done.clear()
            asked_at = time.monotonic()
            self.child.give(prompts.to_json(Prompt(next(self.texts))))
            await self._done.wait()
            times.append(self._first_at - asked_at)
        return times


def long_prompts(target: str, num_tokens: int) -> Iterator[str]:
    """Yields texts of about so many tokens, of which none begins like another."""
    tokenizer = tokenizer_folder.load(target).tokenizer
    ids = encode_prompt(tokenizer, " ".join(one.prompt for one in load()))
    ids = ids * (2 + num_tokens // len(ids))
    for number in count():
        first = encode_prompt(tokenizer, f"{number}. ")
        yield decode(tokenizer, [*first, *ids[number : number + num_tokens - len(first)]])
