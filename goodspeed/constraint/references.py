"""Resolves a JSON schema's references, and makes any part of it a schema of its own.

References are of every kind that stays within the schema: pointers, anchors, `$id`s, and dynamic references to the only
target of their name. Nothing is fetched. In the result all are pointers to `$defs` of its root, which each part that is
referred to moves to, once.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

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

ANNOTATIONS = frozenset(
    "title description default examples deprecated readOnly writeOnly $comment contentMediaType contentEncoding".split()
)
IDENTITIES = ("$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$schema", *DEFINITIONS)
"""Keywords that only name a part, or hold what others refer to: they mean nothing once references are resolved."""

UP_TO_DRAFT_7 = ("draft-04/schema", "draft-06/schema", "draft-07/schema")
"""Ends of `$schema` in drafts that ignore what stands beside `$ref`, and so `$id`."""

MAX_PARTS = 1 << 14
"""Most parts of a schema; one that is written out has at most 65,536 characters, and so fewer parts."""
TOO_MANY = f"the schema has more than {MAX_PARTS} parts; leave some out"

MAX_URIS, MAX_URI = 1 << 10, 512
"""Most URIs in the `$id`s and references of a schema, and characters of one without its fragment: joining two costs as
much as hundreds of characters that are read."""

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
        self._is_old = is_of(root, UP_TO_DRAFT_7)
        self._problem: str | None = None  # why no reference can be followed
        self._places: dict[str, Any] = {"": root}  # by URI with fragment, except for pointers
        self._bases: dict[int, str] = {}  # URI of the resource in which a part lies, by the part's identity
        self._num_dynamic: dict[str, int] = {}
        self._num_resources = 0
        self._uris: dict[tuple[str, str], str] = {}  # by base and relative reference
        self._num_joined = 0  # with those that are no URI

    def target(self, key: str, part: Part) -> Any:
        """Returns the part to which a part's reference refers; ValueError if there is none. key: of `REFERENCES`."""
        reference = part[key]
        if not isinstance(reference, str):
            raise ValueError(f"{key} must be a string, such as {PLACE}name")
        self._read()
        if key == "$dynamicRef" and self._num_dynamic.get(reference.rpartition("#")[2], 0) > 1:
            raise ValueError(f'"{key}": {_shown(reference)} has several targets, so it cannot be kept; write $ref')
        if key == "$recursiveRef" and self._num_resources > 1:
            raise ValueError(f'"{key}" cannot be kept in a schema of several resources; write $ref')
        uri, fragment = self._joined(self._bases.get(id(part), ""), key, reference)
        if uri not in self._places:
            what = f'"{key}": {_shown(reference)} leads out of the schema, and nothing is fetched'
            raise ValueError(f'{what}; put what it names into "$defs"')
        fragment = unquote(fragment)
        found = self._at(self._places[uri], fragment) if fragment[:1] in ("", "/") else None
        if fragment[:1] not in ("", "/"):
            found = self._places.get(f"{uri}#{fragment}")
        if found is None:
            raise ValueError(f'"{key}": {_shown(reference)} does not exist in the schema')
        self._index(found, uri)  # unless a keyword makes it a schema, which is read
        return found

    def _read(self) -> None:
        """Reads the schema once; ValueError for a wrong `$id`, or too many parts."""
        if self._problem is None and id(self._root) not in self._bases:
            try:
                self._index(self._root, "")
            except ValueError as error:
                self._problem = str(error)
        if self._problem is not None:
            raise ValueError(self._problem)

    def _index(self, part: Any, base: str) -> None:
        if not isinstance(part, dict) or id(part) in self._bases:
            return
        if len(self._bases) >= MAX_PARTS:
            raise ValueError(TOO_MANY)
        for key in ("$id", "id"):
            if isinstance(name := part.get(key), str) and not ("$ref" in part and (self._is_old or key == "id")):
                uri, fragment = self._joined(base, key, name)
                if fragment:  # as anchors were written up to draft 7
                    self._places.setdefault(f"{base}#{fragment}", part)
                else:
                    base = uri
                    self._places[base] = part
                    self._num_resources += 1
        self._bases[id(part)] = base
        for key in ("$anchor", "$dynamicAnchor"):
            if isinstance(name := part.get(key), str):
                self._places[f"{base}#{name}"] = part
                self._num_dynamic[name] = self._num_dynamic.get(name, 0) + (key == "$dynamicAnchor")
        with_subschemas(part, lambda each: self._index(each, base))

    def _joined(self, base: str, key: str, reference: str) -> tuple[str, str]:
        """Returns the URI to which a reference leads from a base, and its fragment. key: the keyword that has it."""
        relative, _, fragment = reference.partition("#")
        if not relative:
            return base, fragment
        if (base, relative) not in self._uris:
            self._num_joined += 1
            if self._num_joined > MAX_URIS:
                raise ValueError(f"the schema has more than {MAX_URIS} URIs; leave some out, or write {PLACE}name")
            self._uris[base, relative] = _uri(base, key, relative)
        return self._uris[base, relative], fragment

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
        plain = {key: value for key, value in part.items() if key in KEYWORDS or not _is_idle(key, value)}
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
        return {**found, "allOf": [*others, *found.get("allOf", [])]} if others else found


def _is_idle(key: str, value: Any) -> bool:
    """True if a keyword restricts nothing: it describes, or names a part, or is unknown and may hold parts."""
    return key in ANNOTATIONS or key in IDENTITIES or isinstance(value, dict | list)


def _uri(base: str, key: str, relative: str) -> str:
    try:
        uri = urldefrag(f"{urljoin(base, relative)}#").url if len(relative) <= MAX_URI else relative
    except ValueError as error:
        raise ValueError(f'"{key}": {_shown(relative)} is no URI: {error}') from error
    if len(uri) > MAX_URI:
        raise ValueError(f'"{key}": {_shown(relative)} leads to a URI of more than {MAX_URI} characters; shorten it')
    return uri


def _shown(reference: str) -> str:
    return repr(reference[:100])
