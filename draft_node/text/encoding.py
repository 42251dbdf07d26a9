"""Encodes and decodes users' texts; a long one does not hold up others' short ones. Knows nothing about HTTP.

A tokenizer takes seconds and hundreds of megabytes for some million characters, and must not be used twice at a time.
So there are two of them: one for long texts, and one for the others. With each, users take turns.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from draft_node.text.fair_queue import FairQueue
from goodspeed.engine.tokenizing.chat_inputs import NOTHING, Inputs
from goodspeed.engine.tokenizing.text import decode, encode_chat, encode_part, encode_prompt

LONG = 1 << 14
"""A text of at least this many characters, or token ids, is long; encoding that many takes about 10 ms."""

MAX_CHARS = 1 << 24
"""The most characters of one user's texts that wait or are being encoded, for each of the two tokenizers: four bodies
of 4 MiB. Where token ids become a text, they are counted instead."""

TOO_MUCH = "your earlier texts still wait for the tokenizer; wait for their answers, then ask again"


def num_chat_chars(messages: Sequence[Mapping[str, Any]], inputs: Inputs = NOTHING) -> int:
    """Counts all that a chat template may write: names and roles are as much work as what is said."""
    beside = _num_chars(list(inputs.tools)) + _num_chars(inputs.settings)
    return beside + sum(_num_chars(value) for message in messages for value in message.values())


def _num_chars(value: Any) -> int:
    """Counts the characters of a JSON value, more or less."""
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


class Encoder:
    """Runs the tokenizers in threads of their own, with turns for users by name."""

    def __init__(self, tokenizer: Any) -> None:
        self._short = tokenizer, FairQueue(MAX_CHARS, TOO_MUCH, "short-texts")
        self._long = copy.deepcopy(tokenizer), FairQueue(MAX_CHARS, TOO_MUCH, "long-texts")

    async def prompt(self, text: str, user: str) -> tuple[int, ...]:
        """Token ids; PromptError when it has none, Busy when too much of this user's waits."""
        tokenizer, turns = self._for(len(text))
        return tuple(await turns.run(user, len(text), lambda: encode_prompt(tokenizer, text)))

    async def chat(self, messages: Sequence[Mapping[str, Any]], user: str, inputs: Inputs = NOTHING) -> tuple[int, ...]:
        """Token ids of a conversation; PromptError where the chat template refuses it, Busy as above."""
        num_chars = num_chat_chars(messages, inputs)
        tokenizer, turns = self._for(num_chars)
        return tuple(await turns.run(user, num_chars, lambda: encode_chat(tokenizer, messages, inputs)))

    async def part(self, text: str, user: str) -> tuple[int, ...]:
        """Token ids of a part of a text, without the special tokens of a beginning; none for none. Busy as above."""
        tokenizer, turns = self._for(len(text))
        return tuple(await turns.run(user, len(text), lambda: encode_part(tokenizer, text)))

    async def decode(self, token_ids: Sequence[int], user: str) -> str:
        """Text of token ids, without special tokens; Busy as above."""
        tokenizer, turns = self._for(len(token_ids))
        return await turns.run(user, len(token_ids), lambda: decode(tokenizer, token_ids))

    def close(self) -> None:
        """Ends the threads and cancels the calls that still wait."""
        for _, turns in (self._short, self._long):
            turns.close()

    def _for(self, num_chars: int) -> tuple[Any, FairQueue]:
        return self._short if num_chars < LONG else self._long
