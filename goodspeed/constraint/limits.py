"""Limits the cost of one grammar in llguidance, and asks llguidance about names in a JSON schema."""

import json
import re
from collections.abc import Collection

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
    grammar = LLMatcher.grammar_from_lark(f"start: json\njson: %json {json.dumps({**schema, 'type': 'object'})}")
    matcher = LLMatcher(_BYTES, grammar, log_level=0, limits=LIMITS)
    if matcher.is_error():
        return False
    begun = "".join(f"{json.dumps(name, ensure_ascii=False)}:0," for name in names)
    matcher.try_consume_tokens([*f"{{{begun}".encode()])
    matcher.compute_bitmask()
    return bool(matcher.is_error())
