"""Resolves a JSON schema's references, and makes any part of it a schema of its own.

References are pointers from the root, such as `#/$defs/name`. In the result all lead to `$defs` of its root, which each
part that is referred to moves to, once.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any
from urllib.parse import unquote

DEFINITIONS = ("$defs", "definitions")
MAPS = (*DEFINITIONS, "properties", "patternProperties", "dependentSchemas", "dependencies")
"""Keywords whose values map arbitrary names to schemas."""

LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
SINGLE = (
    *("items", "additionalItems", "unevaluatedItems", "contains", "additionalProperties", "unevaluatedProperties"),
    *("propertyNames", "not", "if", "then", "else", "contentSchema"),
)
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
KEYWORDS = frozenset(
    {*MAPS, *LISTS, *SINGLE, *REFERENCES}.difference(DEFINITIONS).union(
        "const enum type required dependentRequired pattern format multipleOf uniqueItems minimum maximum".split(),
        "exclusiveMinimum exclusiveMaximum minItems maxItems minContains maxContains".split(),
        "minLength maxLength minProperties maxProperties".split(),
    )
)
"""Keywords that restrict values."""

IDLE = [("uniqueItems", False), ("dependentRequired", {}), ("dependentSchemas", {}), ("dependencies", {})]
"""Keywords with values that restrict nothing: the others with which they do are refused."""

ANNOTATIONS = frozenset(
    "title description default examples deprecated readOnly writeOnly $comment contentMediaType contentEncoding".split()
)
IDENTITIES = ("$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$schema", *DEFINITIONS)
"""Keywords that only name a part, or hold what others refer to: they mean nothing once references are resolved."""

OLD_DRAFTS = ("draft-04/schema", "draft-06/schema", "draft-07/schema", "draft/2019-09/schema")
"""Ends of `$schema` in drafts that have tuples in `items`."""

MAX_PARTS = 1 << 14
"""Most parts of a schema; one that is written out has at most 65,536 characters, and so fewer parts."""
TOO_MANY = f"the schema has more than {MAX_PARTS} parts; leave some out"

PLACE = "#/$defs/"
MAX_CHAIN = 8
"""Most references that `followed` follows: they may be circular."""

Part = dict[str, Any]


def standalone(part: Any, root: "Mapping[str, Any] | Resolver", *, is_lenient: bool = False) -> Any:
    """Returns a part of a schema with all that it refers to, directly or through others, as its `$defs`.

    root: the whole schema, or its resolver. ValueError for a reference that leads nowhere or out of the schema;
    is_lenient: `true` instead, which allows anything.
    """
    return _Bundle(root if isinstance(root, Resolver) else Resolver(root), is_lenient).bundled(part)


def followed(wanted: Any, resolver: "Resolver") -> Iterator[Part]:
    """Yields a part of a schema, then the target of its reference, and so on, as far as they can be resolved."""
    for _ in range(MAX_CHAIN):
        if not isinstance(wanted, dict):
            return
        yield wanted
        try:
            wanted = next((resolver.target(key, wanted) for key in REFERENCES if key in wanted), None)
        except ValueError:
            return


def with_subschemas(part: Part, change: Callable[[Any], Any]) -> Part:
    """Returns a copy of a part of a schema with each schema directly within it changed; data stay as they are."""
    found: Part = {}
    for key, value in part.items():
        if key in MAPS and isinstance(value, dict):
            found[key] = {name: change(each) if isinstance(each, dict | bool) else each for name, each in value.items()}
        elif key in LISTS and isinstance(value, list):
            found[key] = [change(each) for each in value]
        else:
            found[key] = change(value) if key in SINGLE else value
    return found


def is_of(schema: Mapping[str, Any], drafts: tuple[str, ...]) -> bool:
    """True if a schema is written for one of these drafts, which are ends of its `$schema`."""
    return str(schema.get("$schema")).rstrip("#").endswith(drafts)


class Resolver:
    """Finds what the references in one schema refer to. Reads the schema at the first reference."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root

    @cached_property
    def _problem(self) -> str | None:
        """Why no reference can be followed; None if all can."""
        parts: list[Any] = [self._root]
        for number, part in enumerate(parts):  # grows meanwhile
            if number > MAX_PARTS:
                return TOO_MANY
            if isinstance(part, dict):
                for key in ("$id", "id") if number else ():
                    if isinstance(name := part.get(key), str) and not name.startswith("#"):
                        return f'"{key}": {_shown(name)} below the root cannot be kept beside references; leave it out'
                with_subschemas(part, parts.append)
        return None

    def target(self, key: str, part: Part) -> Any:
        """Returns the part to which a part's reference refers; ValueError if there is none. key: of `REFERENCES`."""
        reference = part[key]
        if not isinstance(reference, str):
            raise ValueError(f"{key} must be a string, such as {PLACE}name")
        if self._problem is not None:
            raise ValueError(self._problem)
        shown, pointer = f'"{key}": {_shown(reference)}', unquote(reference.removeprefix("#"))
        if key != "$ref" or not reference.startswith("#"):
            what = "is not followed" if key != "$ref" else "leads out of the schema, and nothing is fetched"
            raise ValueError(f'{shown} {what}; put its target into "$defs", and write "$ref": "{PLACE}name"')
        found = self._at(self._root, pointer) if pointer[:1] in ("", "/") else None
        if found is None:
            raise ValueError(f"{shown} does not exist in the schema; write a pointer, such as {PLACE}name")
        return found

    def _at(self, found: Any, pointer: str) -> Any:
        for step in pointer.split("/")[1:]:
            if isinstance(found, list):
                found = found[int(step)] if step.isascii() and step.isdecimal() and int(step) < len(found) else None
            else:
                name = step.replace("~1", "/").replace("~0", "~")
                found = found.get(name) if isinstance(found, dict) else None
        return found


class _Bundle:
    def __init__(self, resolver: Resolver, is_lenient: bool) -> None:
        self._resolver = resolver
        self._is_lenient = is_lenient
        self._targets: dict[int, Part] = {}  # what references refer to, by identity
        self._seen = set[int]()

    def bundled(self, part: Any) -> Any:
        if not isinstance(part, dict):
            return part
        self._collect(part)
        drafts = {"$schema": part["$schema"]} if "$schema" in part else {}
        names = {identity: str(number) for number, identity in enumerate(self._targets, 1)}
        found = drafts | self._placed(part, names)
        if self._targets:
            found["$defs"] = {names[id(each)]: self._copied(each, names) for each in self._targets.values()}
        return found

    def _collect(self, part: Any) -> None:
        """Collects the targets of all references in a part, and in these."""
        left = [part]
        while left:
            one = left.pop()
            if not isinstance(one, dict) or id(one) in self._seen:
                continue
            self._seen.add(id(one))
            if len(self._seen) > MAX_PARTS:
                raise ValueError(TOO_MANY)
            for key in REFERENCES:
                if key in one and isinstance(target := self._target(key, one), dict):
                    self._targets[id(target)] = target
                    left.append(target)
            with_subschemas({key: value for key, value in one.items() if key not in DEFINITIONS}, left.append)

    def _target(self, key: str, part: Part) -> Any:
        try:
            return self._resolver.target(key, part)
        except ValueError:
            if not self._is_lenient:
                raise
            return True

    def _placed(self, part: Any, names: Mapping[int, str]) -> Any:
        return {"$ref": PLACE + names[id(part)]} if id(part) in names else self._copied(part, names)

    def _copied(self, part: Any, names: Mapping[int, str]) -> Any:
        if not isinstance(part, dict):
            return part
        plain = {key: value for key, value in part.items() if not _is_idle(key, value)}
        copied, found, others = with_subschemas(plain, lambda each: self._placed(each, names)), Part(), []
        for key in copied:  # in this order, in which properties are written
            if key not in REFERENCES:
                found[key] = copied[key]
                continue
            target = self._target(key, part)
            placed = self._placed(target, names) if isinstance(target, dict) else target
            if "$ref" in found or not isinstance(placed, dict):
                others.append(placed)
            else:
                found |= placed
        if not others:
            return found
        if not isinstance(those := found.get("allOf", []), list):
            raise ValueError("allOf must be an array of schemas")
        return {**found, "allOf": [*others, *those]}


def _is_idle(key: str, value: Any) -> bool:
    """True if a keyword restricts nothing: it describes, or names a part, or is unknown and may hold parts."""
    if key in KEYWORDS:
        return (key, value) in IDLE
    return key in ANNOTATIONS or key in IDENTITIES or isinstance(value, dict | list)


def _shown(reference: str) -> str:
    return repr(reference[:100])
