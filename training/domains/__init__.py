"""The eight domains in the order of the held-out prompts, and what of each is held out of training.

A domain yields named documents. Whether one is held out is decided by a hash of its name: the module or topic of text
that comes from the standard library, the number of a generated document. So what is held out stays held out on every
Python version, whatever text that version has under the name.
"""

import hashlib
from collections.abc import Callable, Iterator
from itertools import count, islice
from random import Random
from typing import NamedTuple

from training.domains import arithmetic, chats, conversions, queries, records, sources, stories

HELD_OUT_SHARE = 16  # one name in so many


class Document(NamedTuple):
    name: str  # "domain/module" or "domain/number"
    text: str


GENERATORS: dict[str, Callable[[Random], str]] = {
    "math": arithmetic.document,
    "sql": queries.document,
    "chat": chats.document,
    "json": records.document,
    "convert": conversions.document,
    "story": stories.document,
}
SOURCES = ("code", "docs")
NAMES = (*SOURCES, *GENERATORS)


def is_held_out(name: str) -> bool:
    return hashlib.sha256(name.encode()).digest()[0] % HELD_OUT_SHARE == 0


def documents(domain: str, held_out: bool) -> Iterator[Document]:
    """Returns one side of the split: endless for generated domains, a few million characters of the others."""
    if domain in SOURCES:
        named = (Document(f"{domain}/{module}", text) for module, text in sources.library()[domain])
        # The same module is held out of every domain: its docstrings stand in its code.
        return (doc for doc in named if is_held_out(doc.name.partition("/")[2]) == held_out)
    generate = GENERATORS[domain]
    names = (name for name in (f"{domain}/{i}" for i in count()) if is_held_out(name) == held_out)
    return (Document(name, generate(Random(name))) for name in names)


def take(domain: str, num_chars: int, held_out: bool) -> list[Document]:
    """The first documents that together have at least `num_chars`, or all there are."""
    taken: list[Document] = []
    total = 0
    for doc in islice(documents(domain, held_out), 10**6):
        taken.append(doc)
        total += len(doc.text)
        if total >= num_chars:
            break
    return taken
