"""Text of others as it may be shown: nothing in it that a terminal obeys. Knows nothing about where it is shown."""

import unicodedata

OBEYED = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Unicode's categories of what a terminal may obey, or cannot show."""

DIRECTIONS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""They turn text around, so that it reads as what it is not."""

MAX_LINE = 500


def safe(text: str) -> str:
    """Escaped as in a Python string where it is not plain text, a new line or a tab."""
    return "".join(char if _is_plain(char) else char.encode("unicode_escape").decode() for char in text)


def line(text: str) -> str:
    """On one line, and no longer than somebody reads."""
    return safe(" ".join(text[:MAX_LINE].split()))


def _is_plain(char: str) -> bool:
    if char in "\n\t":
        return True
    return char not in DIRECTIONS and unicodedata.category(char) not in OBEYED
