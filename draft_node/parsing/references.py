"""References inside of a JSON schema: what they mean, and which of its definitions a part of it needs."""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

DEFINITIONS = ("$defs", "definitions")
NAMED = (*DEFINITIONS, "properties", "patternProperties", "dependentSchemas")
"""Keywords whose members are schemas by names that are anybody's."""

DATA = ("enum", "const", "default", "examples")
"""Keywords whose values are no schemas."""

OPTIONS = "x-guidance"
"""What llguidance reads as options."""

MAX_STEPS = 8
"""The most steps of a reference, and the most references that are followed one to the next."""


def referred(target: str, schema: Mapping[str, Any]) -> Any:
    """Returns the part of a schema that a reference like `#/$defs/Name` means; None where there is none."""
    part: Any = schema
    for step in _steps(target):
        part = part.get(step) if isinstance(part, dict) else None
    return part


def followed(wanted: Any, schema: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Returns a part of a schema, what that refers to, and so on."""
    for _ in range(MAX_STEPS):
        if not isinstance(wanted, dict):
            return
        yield wanted
        target = wanted.get("$ref")
        wanted = referred(target, schema) if isinstance(target, str) else None


def without_definitions(schema: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns a schema, and apart from it the definitions that its references mean, which belong to the outermost."""
    return (
        {key: value for key, value in schema.items() if key not in DEFINITIONS},
        {key: schema[key] for key in DEFINITIONS if key in schema},
    )


def needed(wanted: Any, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the definitions of a schema that a part of it refers to, and those that these refer to.

    All of them where a reference is no path to a definition: it may mean a name that stands anywhere.
    """
    _, definitions = without_definitions(schema)
    found = dict[str, dict[str, Any]]()
    left = list(_targets(wanted))
    while left:
        where, name = ([*_steps(left.pop()), "", ""])[:2]
        among = definitions.get(where)
        if not isinstance(among, dict) or name not in among:
            return definitions
        if name not in found.setdefault(where, {}):
            found[where][name] = among[name]
            left += _targets(among[name])
    return dict(found)


def has_options(schema: Any) -> bool:
    """Whether a schema, or one inside of it, says by `x-guidance` how it is to be kept."""
    left = [schema]
    while left:
        one = left.pop()
        if not isinstance(one, dict):
            left += one if isinstance(one, list) else []
            continue
        if OPTIONS in one:
            return True
        for key, value in one.items():
            if key in NAMED and isinstance(value, dict):
                left += value.values()
            elif key not in DATA:
                left.append(value)
    return False


def _steps(target: str) -> list[str]:
    """Returns the members that a reference names, outermost first, as a JSON pointer in a fragment spells them."""
    steps = unquote(target).removeprefix("#/").split("/")[:MAX_STEPS]
    return [step.replace("~1", "/").replace("~0", "~") for step in steps]


def _targets(part: Any) -> Iterator[str]:
    """Returns the references inside of a part of a schema."""
    left = [part]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            if isinstance(target := one.get("$ref"), str):
                yield target
            left += one.values()
        elif isinstance(one, list):
            left += one
