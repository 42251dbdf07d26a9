"""Translates the patterns of JSON schemas, which are regular expressions of ECMA 262, to the syntax of Rust's `regex`.

The two read some characters differently (`[a~~b]`, `[a&&b]`, `[[a]`, `a{b}`, `.`), and each has escapes that the other
lacks.
"""

import re

SPECIAL = frozenset(r"\.+*?()|[]{}^$#&-~/")
"""Characters that are escaped to stand for themselves."""

NUL, _PROPERTY = r"\x00", re.compile(r"\\[pP]")

ANY = r"[^\n\r\u2028\u2029]"
_BLANKS = r"\t\n\x0b\x0c\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_CLASSES = {
    "s": _BLANKS,
    "S": (
        r"\x00-\x08\x0e-\x1f!-\x9f\xa1-\u167f\u1681-\u1fff\u200b-\u2027\u202a-\u202e\u2030-\u205e\u2060-\u2fff"
        r"\u3001-\ufefe\uff00-\U0010ffff"
    ),
    "d": "0-9",
    "D": r"\x00-\x2f:-\U0010ffff",
    "w": "0-9A-Za-z_",
    "W": r"\x00-\x2f:-@\x5b-\x5e\x60\x7b-\U0010ffff",
}
"""Members of classes."""

_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v"}

_ATOM = r"\\u[0-9A-Fa-f]{4}|\\x[0-9A-Fa-f]{2}|\\[pP]\{[A-Za-z0-9_=]+\}|\\.?|[^\\]"
_MEMBER = re.compile(rf"({_ATOM})(?:-({_ATOM}))?", re.DOTALL)
_PART = re.compile(
    r"\[(?P<negated>\^?)(?P<members>(?:\\.|[^\]\\])*)\]|(?P<group>\((?:\?:|\?<[A-Za-z_$][\w$]*>|\??))"
    rf"|(?P<quantifier>[*+?]|\{{[0-9]+(?:,[0-9]*)?\}})\??|(?P<count>\{{,[0-9]*\}})|(?P<atom>{_ATOM})",
    re.DOTALL,
)


def translated(pattern: str) -> str:
    """Translates a pattern of ECMA 262 to Rust's syntax. Raises ValueError, with the reason, if Rust cannot express it.

    Does not check that it is a valid pattern: llguidance refuses, for instance, an unclosed group.
    """
    try:
        return "".join(map(_part, _PART.finditer(pattern)))
    except ValueError as error:
        raise ValueError(f"{shown(pattern)} {error}") from None


def shown(pattern: str) -> str:
    return f'the pattern "{pattern[:100]}"'


def _part(found: re.Match[str]) -> str:
    if found["members"] is not None:
        return _class(found["members"], is_negated=bool(found["negated"]))
    if found["group"] == "(?":
        raise ValueError("has look-around, or a group that ECMA 262 does not know; write (...) or (?:...)")
    if found["group"]:
        return "(?:"
    if found["quantifier"]:
        return found["quantifier"]  # greedy or not, the texts are the same
    if found["count"]:
        raise ValueError("has a count without a minimum, which programs read differently; write {0,n}")
    match found["atom"]:
        case ".":
            return ANY
        case "^" | "$" | "|" | ")":
            return found["atom"]
        case "[":
            raise ValueError("has an unclosed character class")
    return _atom(found["atom"])


def _class(members: str, *, is_negated: bool) -> str:
    if not members and not is_negated:
        raise ValueError("has an empty character class, which no character is in; leave it out")
    parts = []
    for low, high in _MEMBER.findall(members):
        ends = [_atom(end, in_class=True) for end in (low, high) if end]
        # a class such as \d has no range: the hyphen is itself
        parts.append((r"\-" if any(map(_is_set, ends)) else "-").join(ends))
    if not parts:
        return r"[\s\S]"
    found = f"[{'^' if is_negated else ''}{''.join(parts)}]"
    return _without_nul(found) if is_negated or NUL in parts[0] or _PROPERTY.search(found) else found


def _without_nul(characters: str) -> str:
    """Returns a class without NUL: with all control characters in it llguidance also takes the escapes `\\\\` and
    `\\"` of characters that the class leaves out."""
    return f"[{characters}&&[^{NUL}]]"


def _atom(atom: str, *, in_class: bool = False) -> str:
    """Translates one character or escape; in_class: within square brackets."""
    if not atom.startswith("\\"):
        return _literal(atom)
    name = atom[1:2]
    if name in _CLASSES:
        return _CLASSES[name] if in_class else f"[{_CLASSES[name]}]"
    if name in _CONTROLS:
        return _code(ord(_CONTROLS[name]))
    if name == "b" and in_class:
        return _code(8)
    if len(atom) > 2 and name in "pP":
        return atom if in_class or name == "p" else _without_nul(atom)
    if len(atom) > 2:
        return _character(int(atom[2:], 16), in_class=in_class)
    if not name:
        raise ValueError("ends in a backslash; write two for the character")
    if name.isalnum():
        raise ValueError(f"has {atom}, which cannot be kept; leave out the backslash, or write what it stands for")
    return _literal(name)


def _character(code: int, *, in_class: bool) -> str:
    if code == 0 and not in_class:
        raise ValueError("has NUL, which cannot be kept; leave it out")
    if 0xD800 <= code < 0xE000:
        raise ValueError("has half a character (\\ud800 to \\udfff); write the character itself")
    return _code(code)


def _is_set(member: str) -> bool:
    return member in _CLASSES.values() or member[:2] in (r"\p", r"\P")


def _literal(char: str) -> str:
    if char.isprintable():
        return f"\\{char}" if char in SPECIAL else char
    return _code(ord(char))


def _code(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
