"""A long text of one user and what others notice of it."""

import asyncio
import threading
from typing import Any

from draft_node.encoding import LONG, Encoder
from goodspeed.engine.text import encode_prompt
from tests.cluster.cluster import load
from tests.waiting import until

MAY_END = threading.Event()
BEGUN: list[int] = []


class Slow:
    """A tokenizer whose long texts take until they are told to end. It fails where it is used twice at a time."""

    def __init__(self) -> None:
        self._in_use = False

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        if self._in_use:
            raise RuntimeError("Already borrowed")
        self._in_use = True
        BEGUN.append(len(text))
        if len(text) >= LONG:
            MAY_END.wait()
        self._in_use = False
        return {"input_ids": [len(text)]}


def test_a_long_text_does_not_hold_up_short_ones() -> None:
    async def body() -> None:
        encoder = Encoder(Slow())
        long = [asyncio.create_task(encoder.prompt("x" * (LONG + i), "greedy")) for i in range(3)]
        try:
            await until(lambda: BEGUN)
            assert await encoder.prompt("hello", "other") == (5,)
            assert await encoder.prompt("hello", "greedy") == (5,)
            assert len(BEGUN) == 3
        finally:
            MAY_END.set()
        assert await asyncio.gather(*long) == [(LONG,), (LONG + 1,), (LONG + 2,)]

    asyncio.run(asyncio.wait_for(body(), 30))


def test_both_tokenizers_give_the_same_ids() -> None:
    async def body() -> None:
        tokenizer = load("tiny-draft-s").tokenizer
        encoder = Encoder(tokenizer)
        text = "The river runs, quickly; over 1,234 stones. " * (LONG // 40)
        assert len(text) > LONG
        assert await encoder.prompt(text, "user") == tuple(encode_prompt(tokenizer, text))
        assert await encoder.chat([{"role": "user", "content": text}], "user") == await encoder.chat(
            [{"role": "user", "content": text}], "other"
        )

    asyncio.run(asyncio.wait_for(body(), 60))
