"""Reads prompts from JSONL, each line with a text, a domain and a seed."""

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct, field

from goodspeed.errors import PromptError, reason
from goodspeed.untrusted import sanitize


class Prompt(Struct, frozen=True, forbid_unknown_fields=True):
    text: Annotated[str, Meta(min_length=1)] = field(name="prompt")
    domain: str = ""
    seed: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)] | None = None
    # "none": the target alone writes, and finds nothing cached; None: the node's
    drafter: Literal["none"] | None = None


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
        return msgspec.json.decode(line, type=Prompt)
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError) as error:
        what = 'write an object like {"prompt": "..."}, with `domain`, `seed` or `"drafter": "none"` if wanted'
        raise PromptError(f"{where}: {sanitize(str(error))}; {what}") from error
