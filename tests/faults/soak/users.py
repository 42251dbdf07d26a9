"""The users who want texts, one after another, from one draft node each, as streams over HTTP.

They ask until told to stop, think a moment between two texts, and some go away in mid-stream. What they get is put down
in `Text`s; what that is worth is judged elsewhere.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from goodspeed.embedded import prompts
from tests.faults.soak.judging import Text
from tests.faults.soak.plan import Role
from tests.faults.texts import SAMPLINGS, Wanted, ask

NUM_WANTED = 40  # different prompts: what the target alone writes is computed once for each text
LENGTHS = (20, 80)
LEAVING_SHARE = 0.08
THINKING_S = 1.0
RETRY_S = 0.5
LOOK_S = 0.02
MOST = 1 << 20  # tokens of a text whose user stays


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


class User:
    """A user who asks for one text at a time, over and over."""

    def __init__(self, role: Role, url: str, wanted: list[Wanted], desk: Desk, seed: str) -> None:
        self._role, self._url, self._wanted, self._desk = role, url, wanted, desk
        self._rng = random.Random(seed)

    async def ask_on(self) -> None:
        while self._desk.is_open:
            await asyncio.sleep(self._rng.expovariate(1 / THINKING_S))
            if not await self._ask():
                await asyncio.sleep(RETRY_S)

    async def _ask(self) -> bool:
        """Asks for one text, and reads it to its end; False when it was not let in."""
        wanted = replace(self._rng.choice(self._wanted), max_tokens=self._rng.randint(*LENGTHS))
        leaves_after = self._rng.randrange(wanted.max_tokens) if self._rng.random() < LEAVING_SHARE else MOST
        number, text = self._desk.begin(self._role, wanted)
        stream, is_over = ask(self._url, wanted), False
        while not is_over and text.ending is None:
            await asyncio.sleep(LOOK_S)
            is_over, text.tokens = stream.is_over, list(stream.tokens)
            if len(text.tokens) > leaves_after:
                text.end("left", "", self._desk.clock())
        stream.leave()
        if stream.error is not None and not text.tokens:
            self._desk.not_let_in(number, getattr(stream.error, "code", None) or type(stream.error).__name__)
            return False
        reason = stream.finish_reason
        text.end("finished" if reason else "broke", reason or f"it broke: {stream.error!r}", self._desk.clock())
        self._desk.end(number)
        return True
