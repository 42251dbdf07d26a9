"""Held-out prompts, as data beside this file: `python -m training.held_out` chose them.

Line i is of domain i modulo 8, so the first eight lines show every domain once, in order.
"""

import json
from pathlib import Path
from typing import NamedTuple

PATH = Path(__file__).parent / "prompts.jsonl"
NUM_DOMAINS = 8


class Prompt(NamedTuple):
    prompt: str
    domain: str
    seed: int


def load(path: Path = PATH) -> list[Prompt]:
    return [Prompt(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def demo() -> list[Prompt]:
    """Returns one prompt of each domain, in the order of the file."""
    return load()[:NUM_DOMAINS]
