"""Escapes untrusted text for a terminal, which must not obey it. Knows nothing about where it is shown."""

import unicodedata

OBEYED = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Unicode categories of characters that a terminal may obey, or cannot show."""

DIRECTIONS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Bidirectional control characters, which can make text appear as something else."""

MAX_LINE = 500


def safe(text: str) -> str:
    """Returns text with all but plain characters, newlines and tabs escaped as in a Python string."""
    return "".join(char if _is_plain(char) else char.encode("unicode_escape").decode() for char in text)


def line(text: str) -> str:
    """Returns text on one line, escaped and cut."""
    return safe(" ".join(text[:MAX_LINE].split()))


def _is_plain(char: str) -> bool:
    if char in "\n\t":
        return True
    return char not in DIRECTIONS and unicodedata.category(char) not in OBEYED
