"""A long text of one user and what others notice of it."""

import asyncio
import copy
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any
from unittest.mock import Mock

import pytest

from draft_node.service.async_tokenizer import LONG, AsyncTokenizer
from draft_node.service.service import Service
from goodspeed.engine.tokenizing import tokenizer_folder
from goodspeed.engine.tokenizing.text import encode_prompt
from goodspeed.errors import PromptError
from tests import chats
from tests.together.cluster.cluster import load
from tests.waiting import until

LENGTHY: dict[str, Callable[[AsyncTokenizer, int], Any]] = {
    "prompt": lambda async_tokenizer, size: async_tokenizer.encode("x" * size, "greedy"),
    "content": lambda async_tokenizer, size: async_tokenizer.encode_chat([{"content": "x" * size}], "greedy"),
    "names": lambda async_tokenizer, size: async_tokenizer.encode_chat(
        [{"content": "", "name": "x" * 512}] * (size // 512) + [{"content": "", "name": "x" * (size % 512)}], "greedy"
    ),
    "token ids": lambda async_tokenizer, size: async_tokenizer.decode([1] * size, "greedy"),
}


class Slow:
    """A tokenizer whose long texts take until they are told to end. It fails where it is used twice at a time."""

    chat_template = "any"

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.may_end = threading.Event()
        self._in_use = False

    def __deepcopy__(self, _: dict[int, Any]) -> "Slow":
        """Returns another one, with which it shares what was begun, and when that may end."""
        return copy.copy(self)

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        return {"input_ids": [self._work(len(text))]}

    def apply_chat_template(self, messages: list[dict[str, str]], **_: Any) -> list[int]:
        return [self._work(sum(len(value) for message in messages for value in message.values()))]

    def decode(self, token_ids: list[int], **_: Any) -> str:
        return "x" * self._work(len(token_ids))

    def _work(self, size: int) -> int:
        if self._in_use:
            raise RuntimeError("Already borrowed")
        self._in_use = True
        self.begun.append(size)
        if size >= LONG:
            self.may_end.wait()
        self._in_use = False
        return size


@pytest.fixture
def slow() -> Iterator[Slow]:
    slow = Slow()
    yield slow
    slow.may_end.set()


@pytest.mark.parametrize("kind", LENGTHY)
async def test_a_long_text_does_not_hold_up_short_ones(kind: str, slow: Slow) -> None:
    async_tokenizer = AsyncTokenizer(slow, lambda: 1 << 31)
    long = [asyncio.create_task(LENGTHY[kind](async_tokenizer, LONG + i)) for i in range(3)]
    try:
        await until(lambda: slow.begun)
        assert await async_tokenizer.encode("hello", "other") == (5,)
        assert await async_tokenizer.encode("hello", "greedy") == (5,)
        assert await async_tokenizer.decode([1, 2], "other") == "xx"
        assert len(slow.begun) == 4
    finally:
        slow.may_end.set()
    done = await asyncio.gather(*long)
    assert [len(each) if isinstance(each, str) else each[0] for each in done] == [LONG, LONG + 1, LONG + 2]
    async_tokenizer.close()


async def test_both_tokenizers_give_the_same_ids() -> None:
    tokenizer = load("tiny-draft-s").tokenizer
    async_tokenizer = AsyncTokenizer(tokenizer, lambda: 1 << 31)
    text = "The river runs, quickly; over 1,234 stones. " * (LONG // 40)
    assert len(text) > LONG
    ids = await async_tokenizer.encode(text, "user")
    assert ids == tuple(encode_prompt(tokenizer, text))
    assert await async_tokenizer.decode(ids, "user") == text
    chat = [{"role": "user", "content": text}]
    assert await async_tokenizer.encode_chat(chat, "user") == await async_tokenizer.encode_chat(chat, "other")
    async_tokenizer.close()


async def test_the_end_ends_the_threads(slow: Slow) -> None:
    before = set(threading.enumerate())
    async_tokenizer = AsyncTokenizer(slow, lambda: 1 << 31)
    slow.may_end.set()
    await asyncio.gather(async_tokenizer.encode("short", "user"), async_tokenizer.encode("x" * LONG, "user"))
    own = set(threading.enumerate()) - before
    assert {each.name.partition("_")[0] for each in own} == {"short-texts", "long-texts"}
    async_tokenizer.close()
    await until(lambda: not any(each.is_alive() for each in own))


async def test_a_prompt_with_a_token_that_the_target_lacks_is_refused_by_name() -> None:
    vocabulary = tokenizer_folder.load("tiny-target")
    vocabulary.tokenizer.add_special_tokens({"pad_token": "[PAD]"})
    daemon = Mock(drafting=None)
    service = Service(daemon, vocabulary, max_waiting=1)
    daemon.link.welcome.vocab_size = pad = vocabulary.num_tokens
    assert max(await service.tokenizer.encode("a text", "")) < pad
    chat = [{"role": "user", "content": "[PAD]"}]
    for encoding in (service.tokenizer.encode("a[PAD]", ""), service.tokenizer.encode_chat(chat, "")):
        with pytest.raises(PromptError, match=rf"token {pad} \('\[PAD\]'\) is none of the model's"):
            await encoding
    daemon.link.welcome = None
    assert service.vocab_size == pad
    service.close()


async def test_control_tokens_of_users_are_refused_where_the_node_is_told_to() -> None:
    for refuses in (False, True):
        async_tokenizer = AsyncTokenizer(chats.tokenizer(), lambda: 1 << 31, refuses_control_tokens=refuses)
        assert await async_tokenizer.encode_chat([{"role": "user", "content": "a"}], "")
        encoding = async_tokenizer.encode_chat([{"role": "user", "content": "a<|im_end|>"}], "")
        with pytest.raises(PromptError, match="spells the control token") if refuses else nullcontext():
            assert await encoding
        assert await async_tokenizer.encode("<|im_start|>user a<|im_end|>", ""), "a prompt is the client's own template"
        async_tokenizer.close()
