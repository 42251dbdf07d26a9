"""Translates the patterns of JSON schemas, which are regular expressions of ECMA 262, to the syntax of Rust's `regex`.

The two read some characters differently (`[a~~b]`, `[a&&b]`, `[[a]`, `a{b}`, `.`), and each has escapes that the other
lacks.
"""

import re

SPECIAL = frozenset(r"\.+*?()|[]{}^$#&-~/")
"""Characters that are escaped to stand for themselves."""

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

_QUANTIFIER = re.compile(r"(?:[*+?]|\{[0-9]+(?:,[0-9]*)?\})(\??)")
_NO_MINIMUM = re.compile(r",[0-9]*\}")
_CODE = re.compile(r"x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|u\{([0-9A-Fa-f]{1,6})\}")
_LOW_SURROGATE = re.compile(r"\\u([Dd][C-Fc-f][0-9A-Fa-f]{2})")
_PROPERTY = re.compile(r"[pP]\{[A-Za-z0-9_=]+\}")
_GROUP = re.compile(r"\((?:\?:|\?<[A-Za-z_$][\w$]*>|(?!\?))")


def translated(pattern: str) -> str:
    """Returns a pattern in Rust's syntax; ValueError with the reason if it is none, or cannot be kept."""
    return _Translator(pattern).translated()


def shown(pattern: str) -> str:
    return f'the pattern "{pattern[:100]}"'


class _Translator:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._can_repeat = False  # the previous part may have a quantifier
        self._depth = 0

    def translated(self) -> str:
        parts = []
        while self._at < len(self._pattern):
            parts.append(self._part())
        if self._depth:
            raise self._wrong("has an unclosed group")
        return "".join(parts)

    def _wrong(self, what: str) -> ValueError:
        return ValueError(f"{shown(self._pattern)} {what}")

    def _take(self, num: int = 1) -> str:
        taken = self._pattern[self._at : self._at + num]
        self._at += num
        return taken

    def _part(self) -> str:
        if found := _QUANTIFIER.match(self._pattern, self._at):
            if not self._can_repeat:
                raise self._wrong(f"has nothing that {found[0]} repeats; write \\ before a character of its own")
            self._can_repeat = False
            self._at = found.end()
            return found[0].removesuffix("?") if found[1] else found[0]  # greedy or not, the texts are the same
        char = self._take()
        self._can_repeat = char not in "(|^$"
        match char:
            case "\\":
                return self._escape(in_class=False)
            case "[":
                return self._class()
            case "(":
                return self._group()
            case ")":
                self._depth -= 1
                if self._depth < 0:
                    raise self._wrong("has an unopened group")
                return ")"
            case ".":
                return ANY
            case "$" | "^" | "|":
                return char
        if char == "{" and _NO_MINIMUM.match(self._pattern, self._at):
            raise self._wrong("has a count without a minimum, which programs read differently; write {0,n}")
        return _literal(char)

    def _group(self) -> str:
        found = _GROUP.match(self._pattern, self._at - 1)
        if found is None:
            if self._pattern.startswith(("?=", "?!", "?<=", "?<!"), self._at):
                raise self._wrong("has look-around ((?=, (?!, (?<=, (?<!), which cannot be kept; write it without")
            raise self._wrong("has a group that ECMA 262 does not know; write (...) or (?:...)")
        self._at = found.end()
        self._depth += 1
        return "(?:"

    def _class(self) -> str:
        is_negated = self._pattern[self._at : self._at + 1] == "^"
        self._at += is_negated
        members = []
        while (char := self._take()) != "]":
            if not char:
                raise self._wrong("has an unclosed character class")
            low = self._escape(in_class=True) if char == "\\" else _literal(char)
            if self._pattern[self._at : self._at + 1] == "-" and self._pattern[self._at + 1 : self._at + 2] != "]":
                members.append(self._range(low))
            else:
                members.append(low)
        if not members:
            if is_negated:
                return r"[\s\S]"
            raise self._wrong("has an empty character class, which no character is in; leave it out")
        return f"[{'^' if is_negated else ''}{''.join(members)}]"

    def _range(self, low: str) -> str:
        self._take()
        char = self._take()
        if not char:
            raise self._wrong("has an unclosed character class")
        high = self._escape(in_class=True) if char == "\\" else _literal(char)
        if any(_is_set(each) for each in (low, high)):  # a class such as \d has no range: the hyphen is itself
            return rf"{low}\-{high}"
        return f"{low}-{high}"

    def _escape(self, *, in_class: bool) -> str:
        char = self._take()
        if not char:
            raise self._wrong("ends in a backslash; write two for the character")
        if char in _CLASSES:
            return _CLASSES[char] if in_class else f"[{_CLASSES[char]}]"
        if char == "b" and in_class:
            return _code(8)
        if char in "bB":
            raise self._wrong(f"has \\{char}, a border of words, which cannot be kept; leave it out")
        if char in _CONTROLS:
            return _code(ord(_CONTROLS[char]))
        if char == "c" and (letter := self._take()) and letter.isascii() and letter.isalpha():
            return _code(ord(letter) % 32)
        if char == "0" and not self._pattern[self._at : self._at + 1].isdigit():
            return _code(0)
        if found := _PROPERTY.match(self._pattern, self._at - 1):
            self._at = found.end()
            return f"\\{found[0]}"
        if found := _CODE.match(self._pattern, self._at - 1):
            self._at = found.end()
            return self._character(int(found[1] or found[2] or found[3], 16))
        if char.isdigit() or char == "k":
            raise self._wrong("refers back to a group, which cannot be kept; write what it may be")
        if char.isalpha():
            raise self._wrong(f"has \\{char}, which ECMA 262 does not know; leave out the backslash, or the escape")
        return _literal(char)

    def _character(self, code: int) -> str:
        low = _LOW_SURROGATE.match(self._pattern, self._at)
        if 0xD800 <= code < 0xDC00 and low:
            self._at = low.end()
            code = 0x10000 + ((code - 0xD800) << 10) + int(low[1], 16) - 0xDC00
        if 0xD800 <= code < 0xE000 or code > 0x10FFFF:
            raise self._wrong("has half a character (\\ud800 to \\udfff); write both halves")
        return _code(code)


def _is_set(member: str) -> bool:
    return member in _CLASSES.values() or member[:2] in (r"\p", r"\P")


def _literal(char: str) -> str:
    if char.isprintable():
        return f"\\{char}" if char in SPECIAL else char
    return _code(ord(char))


def _code(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
