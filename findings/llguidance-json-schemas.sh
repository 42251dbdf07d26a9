#!/bin/sh
# llguidance allows texts that do not satisfy the JSON schema from which it made its grammar.
#
# Asked:   LLMatcher with a schema, and whether it takes a whole JSON text byte by byte and may end there.
# Wanted:  yes for texts that satisfy the schema only, as jsonschema (Draft 2020-12, with its format checks) says.
# Seen:    llguidance 1.9.1 takes each of these, though strict ("lenient" and "coerce_one_of" are false):
#              format date                        "2023-02-29"
#              minProperties 2                    {"a": 1, "a": 2}             (its documents say that names may repeat)
#              additionalProperties beside a      {"a": 1, "\u0061": "x"}      which makes a a string
#              const 9007199254740993             9007199254740992
#              pattern ^[^\\]*$                   "a\\b"
#              prefixItems, beside additionalItems, which draft 2020-12 does not know     ["x"] for an integer and texts
#          And after {"score": 1 beside patternProperties "^score$" it takes a comma, after which nothing may follow.
# So:      rewrite schemas before llguidance reads them, or refuse them (goodspeed/constraint/schemas.py).
#
# Needs Python 3.9 or later and 50 MB in a temporary folder. Exits with 1 if llguidance behaves otherwise.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' INT TERM
"${PYTHON:-python3}" -m venv "$folder/venv"
python="$folder/venv/bin/python"
"$python" -m pip install --quiet llguidance==1.9.1 jsonschema==4.26.0

cat >"$folder/ask.py" <<'END'
"""Asks llguidance and jsonschema for each text; exits with 1 unless llguidance alone takes all of the wrong ones."""

import json
import sys

from jsonschema import Draft202012Validator
from llguidance import LLMatcher, LLTokenizer

BYTES = LLTokenizer("byte")
OPTIONS = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": ", "lenient": False}
INTEGER, TEXT = {"type": "integer"}, {"type": "string"}
SCORE = {"type": "object", "required": ["score"], "patternProperties": {"^score$": INTEGER}, "additionalProperties": False}
CASES = [
    ({"type": "string", "format": "date"}, '"2024-02-29"', '"2023-02-29"'),
    ({"type": "object", "minProperties": 2}, '{"a": 1, "b": 2}', '{"a": 1, "a": 2}'),
    (
        {"type": "object", "properties": {"a": INTEGER}, "additionalProperties": TEXT},
        '{"a": 1, "b": "x"}',
        '{"a": 1, "\\u0061": "x"}',
    ),
    ({"const": 9007199254740993}, None, "9007199254740992"),
    ({"type": "string", "pattern": r"^[^\\]*$"}, '"a/b"', '"a\\\\b"'),
    ({"type": "array", "prefixItems": [INTEGER], "items": TEXT, "additionalItems": False}, None, '["x"]'),
]


def matcher(schema):
    return LLMatcher(BYTES, LLMatcher.grammar_from_json_schema({"x-guidance": OPTIONS, **schema}), log_level=0)


def takes(schema, text):
    at = matcher(schema)
    return at.try_consume_tokens(list(text.encode())) == len(text.encode()) and at.is_accepting()


def satisfies(schema, text):
    checks = Draft202012Validator.FORMAT_CHECKER
    return Draft202012Validator(schema, format_checker=checks).is_valid(json.loads(text))


is_as_seen = True
for schema, right, wrong in CASES:
    found = takes(schema, wrong), satisfies(schema, wrong)
    print(json.dumps(schema), wrong, "llguidance: %s, jsonschema: %s" % found)
    is_as_seen &= found == (True, False) and (right is None or (takes(schema, right) and satisfies(schema, right)))
at = matcher(SCORE)
begun = '{"score": 1, '
num_taken = at.try_consume_tokens(list(begun.encode()))
at.compute_bitmask()
print(json.dumps(SCORE), begun, f"{num_taken} of {len(begun)} bytes taken, then: {at.get_error().splitlines()[:1]}")
is_as_seen &= num_taken == len(begun) and at.is_error()
sys.exit(not is_as_seen)
END

"$python" "$folder/ask.py"
