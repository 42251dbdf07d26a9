"""Options that say which form a generated text keeps, and the constraint that they ask for."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from goodspeed.errors import ConfigError, reason
from goodspeed.serving.config import option
from goodspeed.wire.fields import MAX_CONSTRAINT_CHARS, ConstraintKind
from goodspeed.wire.generation import Constraint

NAMES: Mapping[ConstraintKind, str] = {
    "json_schema": "--json-schema",
    "json_object": "--json-object",
    "regex": "--regex",
    "choice": "--choice",
    "grammar": "--grammar",
}


def json_schema(*, group: str) -> Any:
    return option(
        None, shown="none", group=group, help="a file with the JSON schema that the text is in", metavar="FILE"
    )


def json_object(*, group: str) -> Any:
    return option(False, group=group, help="the text is one JSON object")


def regex(*, group: str) -> Any:
    return option(None, shown="none", group=group, help="the text matches this, as a whole", metavar="REGEX")


def choice(*, group: str) -> Any:
    return option(
        (), shown="none", group=group, help="the text is this, or another choice; may be repeated", metavar="TEXT"
    )


def grammar(*, group: str) -> Any:
    return option(
        None, shown="none", group=group, help="a file with a grammar of the text, in Lark's syntax", metavar="FILE"
    )


def read_constraint(
    *, json_schema: str | None, json_object: bool, regex: str | None, choice: Sequence[str], grammar: str | None
) -> Constraint | None:
    """Returns the form that the options ask for; ConfigError for a file that cannot be read, or for two forms."""
    given: Mapping[ConstraintKind, str | None] = {
        "json_schema": None if json_schema is None else _read("--json-schema", json_schema),
        "json_object": "" if json_object else None,
        "regex": regex,
        "choice": json.dumps(list(choice)) if choice else None,
        "grammar": None if grammar is None else _read("--grammar", grammar),
    }
    forms = [Constraint(kind, source) for kind, source in given.items() if source is not None]
    if len(forms) > 1:
        names = " and ".join(NAMES[form.kind] for form in forms)
        raise ConfigError(f"{names} each say which form the text keeps; give one of them")
    return forms[0] if forms else None


def _read(name: str, path: str) -> str:
    try:
        with Path(path).open(encoding="utf-8") as file:
            text = file.read(MAX_CONSTRAINT_CHARS + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{name} {path}: it cannot be read ({reason(error)}); give a text file") from error
    if len(text) > MAX_CONSTRAINT_CHARS:
        raise ConfigError(f"{name} {path}: it has more than {MAX_CONSTRAINT_CHARS} characters; give a smaller one")
    return text
