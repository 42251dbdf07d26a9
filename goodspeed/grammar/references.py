"""References within one schema: `#`, and pointers from it. There are no other ways to name a part of a schema.

The bounds follow references, and have to see all that the compiler sees. Knows nothing about what is bounded.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from goodspeed.errors import GrammarError

NAMES = ("$id", "$anchor", "$dynamicAnchor", "$dynamicRef")
"""What would give a part of a schema another name, or refer to one."""

OLD = "draft-04"
"""In the `$schema` of those in which `id` is what `$id` is in later ones."""


def check_references(schema: object) -> None:
    """Raises GrammarError for a name within the schema, or a reference that is no pointer from its root."""
    texts = list(_texts(schema))
    is_old = any(key == "$schema" and OLD in text for key, text in texts)
    for key, text in texts:
        if key in NAMES or (key == "id" and is_old):
            raise GrammarError(f"{key} is not taken in a schema; refer to its definitions by #/$defs/NAME")
        if key == "$ref" and not is_plain(text):
            what = f'$ref {text[:100]!r} is not taken: it is neither "#" nor begins with "#/" and has no "%"'
            raise GrammarError(f"{what}; refer to definitions of the same schema by #/$defs/NAME")


def _texts(schema: object) -> Iterator[tuple[str, str]]:
    """All texts of the schema, at any depth, with their keys."""
    waiting = [schema]
    while waiting:
        one = waiting.pop()
        if isinstance(one, list):
            waiting += one
        elif isinstance(one, Mapping):
            yield from ((key, value) for key, value in one.items() if isinstance(value, str))
            waiting += one.values()


def is_plain(reference: str) -> bool:
    """Whether it is the root, or a pointer from it with nothing that could be spelled in several ways."""
    return reference == "#" or (reference.startswith("#/") and "%" not in reference)


def resolve(root: object, reference: str) -> object:
    """Returns what a plain reference names; None where there is nothing, which the compiler refuses."""
    found: Any = root
    for part in reference.split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and part.isascii() and part.isdigit() and int(part) < len(found):
            found = found[int(part)]
        elif isinstance(found, Mapping):
            found = found.get(part)
        else:
            return None
    return found
