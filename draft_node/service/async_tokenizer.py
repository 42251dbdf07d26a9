"""Encodes and decodes texts on threads, fairly by user, since a long one would block the event loop."""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from draft_node.service.fair_queue import FairQueue
from goodspeed.engine.tokenizing.control_tokens import ControlTokens
from goodspeed.engine.tokenizing.text import NOTHING, Inputs, check_ids, decode, encode_chat, encode_prompt

T = TypeVar("T")

LONG = 1 << 14
"""Characters or token ids from which a text is long; encoding that many takes about 10 ms."""

MAX_CHARS = 1 << 24
"""Most characters of one user's texts that wait or are being encoded, per tokenizer (there are two): four bodies of
4 MiB. For decoding, token ids count instead."""

TOO_MUCH = "your earlier texts still wait to be tokenized; wait for their answers, then ask again"


def num_chat_chars(messages: Sequence[Mapping[str, Any]], inputs: Inputs = NOTHING) -> int:
    """Counts the characters that a chat template may emit, including names, roles, tools and settings."""
    beside = _num_chars(list(inputs.tools)) + _num_chars(inputs.settings)
    return beside + sum(_num_chars(value) for message in messages for value in message.values())


def _num_chars(value: Any) -> int:
    """Counts the characters of a JSON value, approximately."""
    match value:
        case str():
            return len(value)
        case Mapping():
            return sum(len(name) + _num_chars(member) for name, member in value.items())
        case list() | tuple():
            return sum(map(_num_chars, value))
        case None:
            return 0
        case _:
            return 4


class AsyncTokenizer:
    """Runs two tokenizers, for short and long texts, each on its own thread and fairly by user."""

    def __init__(self, tokenizer: Any, vocab_size: Callable[[], int], *, refuses_control_tokens: bool = False) -> None:
        """vocab_size: returns the bound of the ids that the target has.

        refuses_control_tokens: refuses conversations whose own texts spell control tokens.
        """
        self._vocab_size = vocab_size
        self._control_tokens = ControlTokens(tokenizer) if refuses_control_tokens else None
        self._short = tokenizer, FairQueue(MAX_CHARS, TOO_MUCH, "short-texts")
        self._long = copy.deepcopy(tokenizer), FairQueue(MAX_CHARS, TOO_MUCH, "long-texts")

    async def encode(self, text: str, user: str) -> tuple[int, ...]:
        """Returns a prompt's token ids; PromptError if there are none, or if the target lacks one.

        Busy if too much of this user's work waits.
        """
        return self._known(await self._run(len(text), user, lambda tokenizer: encode_prompt(tokenizer, text)))

    async def encode_chat(
        self, messages: Sequence[Mapping[str, Any]], user: str, inputs: Inputs = NOTHING
    ) -> tuple[int, ...]:
        """Returns a conversation's token ids; PromptError also if there is no chat template, or it refuses; Busy."""

        def encode(tokenizer: Any) -> list[int]:
            if self._control_tokens is not None:
                self._control_tokens.refuse(tokenizer, messages, inputs.tools, inputs.settings)
            return encode_chat(tokenizer, messages, inputs)

        return self._known(await self._run(num_chat_chars(messages, inputs), user, encode))

    def _known(self, token_ids: Sequence[int]) -> tuple[int, ...]:
        check_ids(self._short[0], token_ids, self._vocab_size())
        return tuple(token_ids)

    async def decode(self, token_ids: Sequence[int], user: str) -> str:
        """Returns the text of token ids, without special tokens; Busy as in `encode`."""
        return await self._run(len(token_ids), user, lambda tokenizer: decode(tokenizer, token_ids))

    async def _run(self, size: int, user: str, work: Callable[[Any], T]) -> T:
        """Runs work with the tokenizer for texts of this size, in characters or token ids."""
        tokenizer, turns = self._short if size < LONG else self._long
        return await turns.run(user, size, lambda: work(tokenizer))

    def close(self) -> None:
        """Ends the threads and cancels waiting calls."""
        for _, turns in (self._short, self._long):
            turns.close()
