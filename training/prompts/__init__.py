"""Prompts of the project's own making in the eight domains of real users, for a draft model's training texts."""

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from training.prompts import chat, coding, math, passages, qa, sql, translation

DOMAINS: dict[str, Callable[[Random], str]] = {
    "chat": chat.write,
    "coding": coding.write,
    "translation": translation.write,
    "summarization": passages.summarization,
    "qa": qa.write,
    "math": math.write,
    "rag": passages.rag,
    "sql": sql.write,
}
"""What writes a prompt of each domain."""


class Prompt(NamedTuple):
    domain: str
    text: str


def made(random: Random, num_prompts: int) -> list[Prompt]:
    """Returns distinct prompts, the domains in turn."""
    found: dict[str, Prompt] = {}
    while len(found) < num_prompts:
        domain = list(DOMAINS)[len(found) % len(DOMAINS)]
        prompt = Prompt(domain, DOMAINS[domain](random))
        found.setdefault(prompt.text, prompt)
    return list(found.values())
