"""Settings as frozen dataclasses, and command-line options generated from their fields.

A field made with `option` carries its help, choices and bounds. The command line takes the default from the dataclass.
The dataclass checks the bounds, so a wrong value is refused from any source. Other fields are set by code only.
"""

import argparse
import re
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, ClassVar, Literal, TypeVar, get_args, get_origin, get_type_hints

from goodspeed.errors import ConfigError

T = TypeVar("T", bound="Settings")

FIRST_GROUP = "most used"
"""Help heading of the fields in `Settings.MOST_USED`."""


def option(
    default: Any,
    group: str,
    help: str,
    *,
    shown: str | None = None,
    choices: tuple[str, ...] = (),
    minimum: float | None = None,
    maximum: float | None = None,
    pattern: str | None = None,
    metavar: str | None = None,
) -> Any:
    """Returns a dataclass field that is also a command-line option. Bounds are inclusive; a pattern must match fully.

    A type like `int | Literal["auto"]` accepts a number within the bounds, or the word. An option of type
    `tuple[str, ...]` may be repeated. `--no-NAME` turns off an option that is on by default. MISSING: required.
    group: heading in the help. shown: the default's text in the help; "none" for a default of None or ().
    """
    if shown is None:
        shown = "off" if isinstance(default, bool) else "none" if default in (None, ()) else str(default)
    bounds = {"choices": choices, "minimum": minimum, "maximum": maximum, "pattern": pattern}
    return field(default=default, metadata={"group": group, "help": help, "shown": shown, "metavar": metavar, **bounds})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Base of all settings: checks every field's choices and bounds.

    MOST_USED: fields that the help lists first, under `FIRST_GROUP`, in this order.
    """

    MOST_USED: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for entry in fields(self):
            _check(entry, getattr(self, entry.name))


def _check(entry: "Field[Any]", value: Any) -> None:
    name, rules = _flag(entry), entry.metadata
    if value is None or not rules:
        return
    if rules["choices"] and value not in rules["choices"]:
        raise ConfigError(f"{name} {value!r} is unknown; choose one of: {', '.join(rules['choices'])}")
    if rules["pattern"] and not re.fullmatch(rules["pattern"], str(value)):
        raise ConfigError(f"{name} {value!r} is unknown; it must be {rules['help']}")
    if isinstance(value, str):
        return  # bounds apply to numbers only
    if rules["minimum"] is not None and not value >= rules["minimum"]:
        raise ConfigError(f"{name} {value} is too small; it must be at least {rules['minimum']}")
    if rules["maximum"] is not None and not value <= rules["maximum"]:
        raise ConfigError(f"{name} {value} is too large; it must be at most {rules['maximum']}")


def add_options(parser: argparse.ArgumentParser, settings: type[Settings]) -> None:
    """Adds an option per field under its group's heading; a field without default is required."""
    hints, required = get_type_hints(settings), list[str]()
    by_name = {entry.name: entry for entry in fields(settings) if entry.metadata}
    for entry in {name: by_name[name] for name in (*settings.MOST_USED, *by_name)}.values():
        rules, kind = entry.metadata, _parser(hints[entry.name])
        how: dict[str, Any] = {"metavar": rules["metavar"] or "|".join(rules["choices"]) or _metavar(entry, kind)}
        shown = f"default: {rules['shown']}"
        if entry.default is MISSING:
            how, shown = {"type": kind, "required": True, **how}, "required"
            required.append(f"{_flag(entry)} {how['metavar']}")
        elif kind is bool:
            how = {"action": "store_false" if entry.default else "store_true"}
        elif get_origin(hints[entry.name]) is tuple:
            how |= {"action": "append"}
        else:
            how |= {"type": kind, "default": entry.default}
        group = group_of(parser, FIRST_GROUP if entry.name in settings.MOST_USED else rules["group"])
        about = f"{rules['help']} ({shown})".replace("%", "%%")
        group.add_argument(_flag(entry), dest=entry.name, help=about, **how)
    parser.usage = " ".join(["%(prog)s", *required, "[options]"])


def group_of(parser: argparse.ArgumentParser, title: str) -> "argparse._ArgumentGroup":
    """Returns the parser's option group with this heading, adding it if needed."""
    known = {group.title: group for group in parser._action_groups}
    return known.get(title) or parser.add_argument_group(title)


def from_namespace(settings: type[T], namespace: argparse.Namespace) -> T:
    """Makes settings from a parsed command line; ConfigError names a value out of bounds."""
    given = {entry.name: getattr(namespace, entry.name) for entry in fields(settings) if entry.metadata}
    repeated = {entry.name: entry.default for entry in fields(settings) if isinstance(entry.default, tuple)}
    return settings(**given | {name: tuple(given[name] or default) for name, default in repeated.items()})


def _metavar(entry: "Field[Any]", kind: Callable[[str], Any]) -> str:
    if kind is str:
        return entry.name.upper()
    return "S" if entry.name.endswith("_s") else "MS" if entry.name.endswith("_ms") else "N"


def _flag(entry: "Field[Any]") -> str:
    """Returns the option's name: --no-NAME for an option that is on by default."""
    return ("--no-" if entry.default is True else "--") + entry.name.replace("_", "-")


def _parser(hint: Any) -> Callable[[str], Any]:
    """Returns a function that parses a value of type `X`, `X | None`, or `X | Literal["word"]`."""
    inner = [kind for kind in get_args(hint) or (hint,) if kind is not type(None)]
    if get_origin(hint) is Literal or get_origin(inner[0]) is Literal:
        return str  # `choices` checks the words
    words = [word for kind in inner if get_origin(kind) is Literal for word in get_args(kind)]
    kind: Callable[[str], Any] = inner[0]
    if kind not in (int, float):
        return kind
    wanted = "a whole number" if kind is int else "a number"

    def number_or_word(text: str) -> Any:
        try:
            return text if text in words else kind(text)
        except ValueError:
            what = f"neither a number nor {' or '.join(words)}" if words else f"not {wanted}"
            raise argparse.ArgumentTypeError(f"{text!r} is {what}") from None

    return number_or_word
