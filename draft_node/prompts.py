"""Prompts from a JSONL file or from lines of text. Knows nothing about models or sessions."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from goodspeed.errors import PromptError

KNOWN = {"prompt", "domain", "seed"}


@dataclass(frozen=True, slots=True)
class Prompt:
    """One text to go on from."""

    text: str
    domain: str = ""
    seed: int | None = None


def read_file(path: str) -> list[Prompt]:
    """All prompts of a JSONL file; PromptError names the line that is wrong."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise PromptError(f"cannot read the prompts in {path}: {error}") from error
    prompts = [parse(line, f"{path}, line {number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not prompts:
        raise PromptError(f"{path} holds no prompts; write one JSON object with a `prompt` per line")
    return prompts


def parse(line: str, where: str) -> Prompt:
    """One line of JSON as a prompt."""
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        raise PromptError(f"{where}: not JSON ({error.msg}); write an object with a `prompt`") from error
    if not isinstance(value, dict) or not isinstance(value.get("prompt"), str):
        raise PromptError(f"{where}: an object with a text `prompt` is needed")
    if unknown := sorted(set(value) - KNOWN):
        raise PromptError(f"{where}: unknown {', '.join(unknown)}; known are {', '.join(sorted(KNOWN))}")
    seed, domain = value.get("seed"), value.get("domain", "")
    if seed is not None and not (isinstance(seed, int) and not isinstance(seed, bool) and 0 <= seed < 1 << 63):
        raise PromptError(f"{where}: the seed must be a whole number from 0 to 2^63 - 1")
    if not isinstance(domain, str):
        raise PromptError(f"{where}: the domain must be text")
    if not value["prompt"]:
        raise PromptError(f"{where}: the prompt is empty; give at least one character")
    return Prompt(value["prompt"], domain, seed)


def from_lines(lines: Iterable[str]) -> Iterator[Prompt]:
    """Every line that is not blank, as a prompt of its own."""
    for line in lines:
        text = line.rstrip("\n")
        if text.strip():
            yield Prompt(text)
