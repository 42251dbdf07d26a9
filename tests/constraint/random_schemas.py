"""Writes JSON schemas at random, of all keywords that are kept: most say little, and some contradict themselves."""

import random
from collections.abc import Sequence
from typing import Any

NAMES = ["a", "b", "ab", "x-1", "score"]
PATTERNS = ["^a", "^x-", "^score$", "b$", "^[a-c]{1,2}$", "^.{1,2}$"]
FORMATS = ["date", "time", "date-time", "ipv4", "ipv6", "uuid", "email", "hostname", "duration", "uri"]
VALUES: list[Any] = [1, 2.5, "a", True, None, [1], {"a": 1}, "score", -3, 0.1]
MAX_DEPTH = 2


def random_schema(seed: int) -> dict[str, Any]:
    """Returns the schema of a seed; some refer to its definitions, and to itself."""
    rng = random.Random(seed)
    targets = ["#/$defs/p", "#/$defs/q", "#"] if rng.random() < 0.4 else []
    found = _schema(rng, 0, targets)
    if not isinstance(found, dict):
        found = {}
    if targets:
        found["$defs"] = {"p": _schema(rng, 1, targets), "q": _schema(rng, 1, targets)}
    return found


def _schema(rng: random.Random, depth: int, targets: Sequence[str]) -> Any:
    kind = rng.random()
    if targets and kind < 0.15:
        return {"$ref": rng.choice(targets)}
    if depth > MAX_DEPTH or kind < 0.25:
        return _leaf(rng)
    if kind < 0.6:
        return _object(rng, depth, targets)
    if kind < 0.75:
        return _array(rng, depth, targets)
    keyword = rng.choice(["anyOf", "oneOf", "allOf"])
    found = {keyword: [_schema(rng, depth + 1, targets) for _ in range(rng.randint(1, 3))]}
    if rng.random() < 0.4 and isinstance(other := _schema(rng, depth + 1, targets), dict):
        return {**found, **other} if rng.random() < 0.5 else {**other, **found}
    return found


def _leaf(rng: random.Random) -> Any:
    several: list[Any] = [
        lambda: {"type": "integer", "minimum": rng.randint(-20, 5), "maximum": rng.randint(6, 40)},
        lambda: {"type": "integer", "multipleOf": rng.choice([2, 3, 7]), "minimum": 0, "maximum": 50},
        lambda: {"type": "number", "exclusiveMinimum": rng.choice([-1, 0, 0.5]), "maximum": rng.choice([1, 2.25, 10])},
        lambda: {"type": "number", "multipleOf": rng.choice([0.5, 2, 0.25]), "minimum": -3, "maximum": 9},
        lambda: {"type": "string", "pattern": rng.choice(PATTERNS), "maxLength": rng.randint(5, 8)},
        lambda: {"type": "string", "minLength": rng.randint(0, 2), "maxLength": rng.randint(3, 5)},
        lambda: {"type": "string", "format": rng.choice(FORMATS)},
        lambda: {"enum": rng.sample(VALUES, rng.randint(1, 4))},
        lambda: {"const": rng.choice([0, "x", None, False, [], {}, {"a": [1]}])},
        lambda: {"type": rng.choice(["boolean", "null", ["string", "null"], ["integer", "boolean"]]), "maxLength": 4},
        lambda: True,
        dict,
        lambda: {"type": ["integer", "string"], "minimum": 3, "maximum": 30, "maxLength": 3},
    ]
    return rng.choice(several)()


def _object(rng: random.Random, depth: int, targets: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "object"} if rng.random() < 0.85 else {}
    if names := rng.sample(NAMES, rng.randint(0, 3)):
        found["properties"] = {name: _schema(rng, depth + 1, targets) for name in names}
    if rng.random() < 0.5:
        found["required"] = rng.sample(NAMES, rng.randint(0, 2))
    if rng.random() < 0.5:
        found["additionalProperties"] = rng.choice([False, False, True, _schema(rng, depth + 1, targets)])
    if rng.random() < 0.3:
        patterns = rng.sample(PATTERNS, rng.randint(1, 2))
        found["patternProperties"] = {pattern: _schema(rng, depth + 1, targets) for pattern in patterns}
    for key in ("minProperties", "maxProperties"):
        if rng.random() < 0.2:
            found[key] = rng.randint(0, 3)
    items = list(found.items())
    rng.shuffle(items)
    return dict(items)


def _array(rng: random.Random, depth: int, targets: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "array", "maxItems": rng.randint(0, 4)}
    if rng.random() < 0.5:
        found["minItems"] = rng.randint(0, 2)
    if rng.random() < 0.7:
        found["items"] = _schema(rng, depth + 1, targets)
    if rng.random() < 0.4:
        found["prefixItems"] = [_schema(rng, depth + 1, targets) for _ in range(rng.randint(1, 2))]
    if rng.random() < 0.1:
        found["additionalItems"] = False
    if rng.random() < 0.05:
        found["uniqueItems"] = True
    return found
