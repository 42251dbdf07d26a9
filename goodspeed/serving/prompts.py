"""Reads prompts from JSONL, each line with a text, a domain and a seed."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from goodspeed.errors import PromptError, reason

KNOWN = {"prompt", "domain", "seed", "drafter"}


@dataclass(frozen=True, slots=True)
class Prompt:
    text: str
    domain: str = ""
    seed: int | None = None
    drafter: Literal["none"] | None = (
        None  # "none": the target alone writes, and finds nothing cached; None: the node's
    )


def read_file(path: str | Path) -> list[Prompt]:
    """Reads a JSONL file's prompts; PromptError names a bad line."""
    try:
        lines = Path(path).read_text(encoding="utf-8").split("\n")  # splitlines() would split inside JSON strings
    except (OSError, UnicodeDecodeError) as error:
        what = f"--prompts {path}: cannot read it ({reason(error)}); give a file with one JSON object a line"
        raise PromptError(what) from error
    prompts = [parse(line, f"{path}, line {number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not prompts:
        raise PromptError(f"{path} has no prompts; give one JSON object with a `prompt` per line")
    return prompts


def parse(line: str, where: str) -> Prompt:
    """Parses one JSON line. where: the line's place, for PromptError."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise PromptError(f"{where}: not JSON ({error}); write an object with a `prompt`") from error
    if not isinstance(value, dict) or not isinstance(value.get("prompt"), str):
        raise PromptError(f'{where}: not an object with a string `prompt`; write {{"prompt": "..."}}')
    if unknown := sorted(set(value) - KNOWN):
        some = ", ".join(ascii(name)[1:-1][:40] for name in unknown[:4])
        raise PromptError(f"{where}: unknown {some}; use only {', '.join(sorted(KNOWN))}")
    seed, domain = value.get("seed"), value.get("domain", "")
    if seed is not None and not (isinstance(seed, int) and not isinstance(seed, bool) and 0 <= seed < 1 << 63):
        raise PromptError(f"{where}: the seed must be a whole number from 0 to 2^63 - 1")
    if not isinstance(domain, str):
        raise PromptError(f"{where}: the domain must be text")
    drafter = value.get("drafter")
    if drafter not in (None, "none"):
        raise PromptError(f'{where}: the drafter can only be "none", for text of the target alone; leave it out')
    if not value["prompt"]:
        raise PromptError(f"{where}: the prompt is empty; give at least one character")
    _check_unicode(value["prompt"] + domain, where)
    return Prompt(value["prompt"], domain, seed, drafter)


def _check_unicode(text: str, where: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise PromptError(f"{where}: not valid Unicode ({error.reason}); remove lone surrogates") from error
