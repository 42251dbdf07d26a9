"""Loads the held-out prompts in `prompts.jsonl`: beginnings of documents that no embedded model was trained on.

Line i belongs to domain i modulo 8, so the first eight lines have every domain once, in order.
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
    """Reads all prompts of a JSONL file, in file order."""
    return [Prompt(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def demo() -> list[Prompt]:
    """Returns one prompt per domain, in file order."""
    return load()[:NUM_DOMAINS]
