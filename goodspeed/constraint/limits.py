"""Limits the cost of one grammar in llguidance, and asks llguidance about names in a JSON schema."""

import json
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

LIMITS = LLParserLimits(
    initial_lexer_fuel=200_000,  # about 30 ms to compile
    step_lexer_fuel=50_000,  # about 4 ms per mask
    step_max_items=10_000,
    max_items_in_row=2_000,
    max_lexer_states=5_000,  # per session, 2 kB each
    max_grammar_size=50_000,
    precompute_large_lexemes=False,
    verbose_errors=False,  # else errors would quote the whole grammar
)
"""Cost limits of one grammar, in llguidance's units."""

_BYTES = LLTokenizer("byte")
_MANY = ("*", "+", ".", ",}", "[^")
_ESCAPE = re.compile(r"\\.", re.DOTALL)


def matching(pattern: str) -> Callable[[str], bool]:
    """Returns a function that says whether a pattern (in Rust's syntax) matches in a text.

    The function raises a ValueError if the pattern is wrong or costs too much.
    """
    beginning = _matcher({"type": "string", "pattern": pattern})

    def matches(text: str) -> bool:
        matcher = beginning.deep_copy()
        said = json.dumps(text, ensure_ascii=False).replace("\x7f", r"\u007f").encode()
        num_taken = matcher.try_consume_tokens([*said])
        if matcher.is_error():
            what = f'the pattern "{pattern[:100]}" is wrong, or costs too much to search in names'
            raise ValueError(f"{what}; write a simpler one")
        return num_taken == len(said)

    return matches


def matches_no_other(pattern: str, names: Collection[str]) -> bool:
    """True if a pattern (in Rust's syntax) matches these names of an object, all of which it matches, and no other.

    False also where it can have many matches. llguidance begins another name where none is left, and is stuck there.
    """
    plain = _ESCAPE.sub("", pattern)
    if not names or not {"^", "$"} <= set(plain) or any(each in plain for each in _MANY):
        return False
    schema = {
        "x-guidance": {"whitespace_flexible": False},
        "properties": {name: {"const": 0} for name in names},
        "required": [*names],
        "patternProperties": {pattern: {"const": 0}},
        "additionalProperties": False,
    }
    matcher = _matcher({**schema, "type": "object"})
    if matcher.is_error():
        return False
    begun = "".join(f"{json.dumps(name, ensure_ascii=False)}:0," for name in names)
    matcher.try_consume_tokens([*f"{{{begun}".encode()])
    matcher.compute_bitmask()
    return bool(matcher.is_error())


def _matcher(schema: Mapping[str, Any]) -> LLMatcher:
    grammar = LLMatcher.grammar_from_lark(f"start: json\njson: %json {json.dumps(schema)}")
    return LLMatcher(_BYTES, grammar, log_level=0, limits=LIMITS)
