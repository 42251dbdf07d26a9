"""Reads chats by domain: a folder has a file DOMAIN.jsonl for each, with one object `{"id", "turns"}` a line."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from goodspeed.engine.tokenizing.text import encode_chat
from goodspeed.errors import PromptError, reason

MAX_PROMPT = 1024
"""The most tokens of an encoded prompt: with its answer it fits into 2,048 tokens."""


class Chat(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A user's messages, of which the first one is asked."""

    id: str
    turns: tuple[str, ...]


def load(path: Path, domains: Sequence[str] | None = None) -> dict[str, list[Chat]]:
    """Returns the chats of these domains, else of all files in the folder, or of the one file.

    PromptError names what is missing, or the line that is wrong.
    """
    if domains is not None:
        files = [path / f"{domain}.jsonl" for domain in domains]
    else:
        files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    if not files:
        raise PromptError(f"{path}: there are no prompts; give a folder with a file DOMAIN.jsonl for each domain")
    return {file.stem: _read(file) for file in files}


def encoded(chats: Sequence[Chat], tokenizer: Any) -> list[list[int]]:
    """Returns the tokens of each chat's first message as a prompt, without those longer than MAX_PROMPT."""
    prompts = (encode_chat(tokenizer, [{"role": "user", "content": chat.turns[0]}]) for chat in chats)
    return [prompt for prompt in prompts if len(prompt) <= MAX_PROMPT]


def _read(file: Path) -> list[Chat]:
    try:
        lines = file.read_text("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise PromptError(f"{file}: it cannot be read ({reason(error)}); give another file") from error
    chats = [_parsed(line, f"{file}, line {number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not chats:
        raise PromptError(f"{file}: there are no prompts; write one a line")
    return chats


def _parsed(line: str, where: str) -> Chat:
    try:
        found = msgspec.json.decode(line, type=Chat)
    except (msgspec.DecodeError, RecursionError) as error:
        raise PromptError(f'{where}: {error}; write {{"id": "...", "turns": ["..."]}}') from error
    if not found.turns or not found.turns[0]:
        raise PromptError(f"{where}: the first of its turns is empty; write a question")
    return found
