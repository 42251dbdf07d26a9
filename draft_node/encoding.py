"""Users' texts to token ids, without a long one holding up others' short ones. Knows nothing about HTTP.

A tokenizer takes seconds and hundreds of megabytes for some million characters, and must not be used twice at a time.
So there are two of them: one for long texts, and one for the others. With each, users take turns.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from draft_node.turns import Turns
from goodspeed.engine.text import encode_chat, encode_prompt

LONG = 1 << 14
"""A text of at least this many characters is long; encoding that many takes about 10 ms."""

MAX_CHARS = 1 << 24
"""Of one user's texts that wait or are being encoded, for each of the two tokenizers: four bodies of 4 MiB."""

TOO_MUCH = "your earlier texts still wait for the tokenizer; wait for their answers, then ask again"


class Encoder:
    """A tokenizer's work, for users by name."""

    def __init__(self, tokenizer: Any) -> None:
        self._short = tokenizer, Turns(MAX_CHARS, TOO_MUCH)
        self._long = copy.deepcopy(tokenizer), Turns(MAX_CHARS, TOO_MUCH)

    async def prompt(self, text: str, user: str) -> tuple[int, ...]:
        """Token ids; PromptError when it has none, Busy when too much of this user's waits."""
        tokenizer, turns = self._for(len(text))
        return tuple(await turns.run(user, len(text), lambda: encode_prompt(tokenizer, text)))

    async def chat(self, messages: Sequence[Mapping[str, str]], user: str) -> tuple[int, ...]:
        """Token ids of a conversation; PromptError where the chat template refuses it, Busy as above."""
        num_chars = sum(len(message["content"]) for message in messages)
        tokenizer, turns = self._for(num_chars)
        return tuple(await turns.run(user, num_chars, lambda: encode_chat(tokenizer, messages)))

    def _for(self, num_chars: int) -> tuple[Any, Turns]:
        return self._short if num_chars < LONG else self._long
