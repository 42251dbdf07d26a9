"""Schemas as people write them, and constraints whose rows of a mask cost most."""

import json
from pathlib import Path
from typing import Any

from goodspeed.wire.generation import Constraint

SCHEMAS = Path(__file__).parent / "schemas"

LONG = "abcdefghij " * 370  # 4,070 bytes
_NODE = {"n": {"anyOf": [{"$ref": "#/$defs/t"}, {"type": "null"}]}, "z": {"const": LONG}}


def _schema(**schema: Any) -> Constraint:
    return Constraint("json_schema", json.dumps(schema))


HOSTILE_ROWS = {  # the most that a row of a mask may cost
    "60,000 digits": _schema(const="7" * 60_000),
    "15 long values": _schema(enum=[f"{each}{LONG}" for each in range(15)]),
    "400 long items": _schema(type="array", minItems=400, maxItems=400, items={"const": LONG}),
    "items apart from their number": _schema(
        allOf=[{"type": "array", "items": {"const": LONG[:900]}}, {"minItems": 1000}]
    ),
    "a long pattern": _schema(type="string", pattern=f"^{LONG[:4000]}$"),
    "1,000 repetitions": _schema(type="string", pattern="^(abc){1000}[0-9]$"),
    "a pattern and a length": _schema(type="string", pattern="^a*$", minLength=60_000),
    "long names": _schema(
        type="object",
        properties={f"p{each}" + "x" * 200: {"const": 1} for each in range(200)},
        required=[f"p{each}" + "x" * 200 for each in range(200)],
    ),
    "a name of stars": _schema(
        type="object", properties={"*" * 4_000: {"const": 1}}, additionalProperties=False, minProperties=1
    ),
    "a tree with a long end": _schema(
        **{"$defs": {"t": {"type": "object", "properties": _NODE, "required": ["n", "z"]}}, "$ref": "#/$defs/t"}
    ),
    "long choices": Constraint("choice", json.dumps([LONG[:4000] + str(each) for each in range(8)])),
    "doubled rules": Constraint(
        "grammar", "start: r0\n" + "\n".join(f"r{n}: r{n + 1} r{n + 1}" for n in range(40)) + f'\nr40: "{LONG[:1000]}"'
    ),
    "a long text that is ignored": Constraint("grammar", 'start: "a" "b"+\n%ignore /x{4000}/'),
}


def schemas() -> list[Constraint]:
    lines = [line for path in sorted(SCHEMAS.glob("*.jsonl")) for line in path.read_text("utf-8").splitlines()]
    return [Constraint("json_schema", line) for line in lines]
