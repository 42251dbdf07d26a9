"""Patterns of JSON schemas match as ECMA 262 says, in texts and in names."""

import json
import re

import pytest

from goodspeed.constraint.patterns import translated
from goodspeed.errors import ConstraintError
from goodspeed.wire.generation import Constraint
from tests.constraint.babbler import CONSTRAINTS, END, encode
from tests.constraint.ending import may_end

MATCHED = [
    ("^[a~~b]$", ["a", "~", "b"], ["c", ""]),
    ("^[a-z&&b]$", ["a", "&", "b"], ["A"]),
    ("^[a-f--b]$", ["a", "-", "b"], ["~"]),
    ("^[[:alpha:]]$", ["[]", ":]", "a]"], ["a", "b"]),
    ("^[a[b]$", ["a", "[", "b"], ["]"]),
    (r"^[\]\\^-]$", ["]", "\\", "^", "-"], ["a"]),
    (r"^[\d-x]$", ["5", "-", "x"], ["a", "٣"]),
    (r"^[\w.-]+$", ["a_1.-"], ["é", " "]),
    (r"^[^\S]$", [" ", "\u00a0"], ["a"]),
    (r"^[\s\S]$", ["a", " ", "\n"], ["", "ab"]),
    ("^[^]$", ["a", "\n"], ["", "ab"]),
    ('^[^"]*$', ["a", "\\", "\x01"], ['"', 'a"b']),
    (r"^[^/\\]+$", ["a", '"'], ["\\", "a/", "a\\b"]),
    (r"^[\x00-!#-\x7f]+$", ["a", "\\", "\x01"], ['"', 'a"b', "\x00"]),
    (r"^[\x00\x01-!#-~]+$", ["a", "\x01"], ['"', 'a"b']),
    (r"^[\p{L}\p{Cc} ]+$", ["a \x01"], ["\\", '"']),
    (r"^\P{P}*$", ["a", "\x01"], ['"', "\\", 'a"b']),
    (r"^[\P{Po}]*$", ["a"], ['"', "\\"]),
    (r"^[^\x00-\x1f]*$", ["a", '"'], ["\x00", "\n"]),
    (r"^[\b]$", ["\b"], ["b"]),
    (r"^\d$", ["5"], ["٣", "a"]),
    (r"^\s$", [" ", "\ufeff", "\u2028"], ["\x85", "a"]),
    (r"^[\D]$", ["a", "٣", "/", ":"], ["5"]),
    (r"^[\W]$", ["é", "-", "`", "["], ["a", "_", "5", "Z"]),
    (r"^[\S]$", ["a", "\x85"], [" ", "\ufeff", "\u2028"]),
    (r"^\S$", ["a", "\x85"], [" ", "\ufeff"]),
    ("^.$", ["a", "\x85"], ["\n", "\r", "\u2028"]),
    ("a.c", ["abc", "xabcx"], ["a\nc"]),
    ("^a|b$", ["ax", "xb"], ["xa", "bx"]),
    ("(^a|b$)", ["ax", "xb"], ["xa"]),
    ("", ["", "x"], []),
    ("^$", [""], ["x", "\n"]),
    ("^a{b}$", ["a{b}"], ["ab"]),
    ("^{}]$", ["{}]"], []),
    ("^a{2}b{1,}c{0,1}?$", ["aab", "aabbc"], ["ab", "aabcc"]),
    ("^a+?b*?$", ["a", "aab"], ["b"]),
    ("^(?:a|(?<n>b))$", ["a", "b"], ["c"]),
    (r"^\u0041\x42\t[\x43\u00e9]$", ["AB\tC", "AB\té"], ["AB\t"]),
    (r"^\/\-\#\_$", ["/-#_"], []),
    ("^#a b~&/$", ["#a b~&/"], ["#ab"]),
    ("^é😀$", ["é😀"], ["é"]),
]


@pytest.mark.parametrize(("pattern", "right", "wrong"), MATCHED, ids=[each[0] for each in MATCHED])
def test_patterns_match_as_ecma_262_says(pattern: str, right: list[str], wrong: list[str]) -> None:
    source = json.dumps({"type": "string", "pattern": pattern, "maxLength": 9})
    compiled = CONSTRAINTS.get(Constraint("json_schema", source))
    for text in (*right, *wrong):
        said = encode(json.dumps(text, ensure_ascii=False).replace("\x7f", ""))
        assert may_end(compiled, said, END) is (text in right), text


def test_properties_of_characters_are_rusts() -> None:
    assert translated(r"^\p{Lu}[\p{L}\P{N}]$") == r"^\p{Lu}[[\p{L}\P{N}]&&[^\x00]]$"


REFUSED = [
    ("a{,2}", r"a count without a minimum"),
    ("(?=a)b", "look-around"),
    ("(?<!a)b", "look-around"),
    ("(?i)a", "a group that ECMA 262 does not know"),
    ("(?P<n>a)", "a group that ECMA 262 does not know"),
    (r"\bword", r"has \\b, which cannot be kept"),
    (r"(a)\1", r"has \\1, which"),
    (r"(?<n>a)\k<n>", r"has \\k, which"),
    (r"\Aa\z", r"has \\A, which"),
    (r"\u{43}", r"has \\u, which"),
    (r"\ud83d\ude00", "half a character"),
    ("[]", "empty character class"),
    ("[a", "unclosed character class"),
    ("[a-", "unclosed character class"),
    (r'^(\x00|[^"])*$', "has NUL"),
    ("a\\", "ends in a backslash"),
]


@pytest.mark.parametrize(("pattern", "why"), REFUSED, ids=[each[0] for each in REFUSED])
def test_what_is_no_pattern_or_cannot_be_kept_is_refused(pattern: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as error:
        translated(pattern)
    assert f'the pattern "{pattern}"' in str(error.value)


@pytest.mark.parametrize("pattern", ["(a", "a)", "(|+)", "(*)"])
def test_what_is_no_pattern_is_refused_by_llguidance(pattern: str) -> None:
    with pytest.raises(ConstraintError):
        CONSTRAINTS.get(Constraint("json_schema", json.dumps({"type": "string", "pattern": pattern})))


def test_long_patterns_take_little_time() -> None:
    assert translated("a{" * 20_000) == r"a\{" * 20_000
    for part in ("{,}", "[", "(?", r"\u{", "[a-", r"\ud83d", "[\\]"):
        with pytest.raises(ValueError, match=r"^the pattern .{1,200}$"):
            translated(part * 20_000)
    assert re.compile(translated("(a|[b-d]){1,2}" * 2_000))
