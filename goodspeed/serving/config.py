"""Settings as frozen dataclasses, and the command-line options made from them.

A field made with `option` carries its help, its choices and its bounds; the command line takes its default from the
dataclass, and the dataclass checks the bounds, so that a wrong value is refused wherever it comes from.
"""

import argparse
import re
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, ClassVar, Literal, TypeVar, get_args, get_origin, get_type_hints

from goodspeed.errors import ConfigError

T = TypeVar("T", bound="Settings")

FIRST_GROUP = "most used"
"""Heading of the help under which the fields of `Settings.MOST_USED` are."""


def option(
    default: Any = MISSING,
    *,
    help: str,
    group: str = "options",
    shown: str | None = None,
    choices: tuple[str, ...] = (),
    minimum: float | None = None,
    maximum: float | None = None,
    pattern: str | None = None,
    metavar: str | None = None,
) -> Any:
    """Returns a dataclass field that is also a command-line option; bounds are inclusive, a pattern has to match fully.

    A type like `int | Literal["auto"]` takes a number within the bounds, or that word; an option whose type is
    `tuple[str, ...]` may be given several times; one that is on by default is turned off by `--no-NAME`. The help lists
    the option under the heading `group`, and its default as `shown` has it: None needs words that say what it means.
    """
    if default is None and shown is None:
        raise RuntimeError(f"an option's default is None, and `shown` does not say what that means: {help}")
    bounds = {"choices": choices, "minimum": minimum, "maximum": maximum, "pattern": pattern}
    return field(default=default, metadata={"help": help, "group": group, "shown": shown, "metavar": metavar, **bounds})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Base of the nodes' settings: checks every field's choices and bounds.

    MOST_USED: fields whose options the help has first, under a heading of their own, in this order.
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
        return  # a word beside numbers has no bounds
    if rules["minimum"] is not None and not value >= rules["minimum"]:
        raise ConfigError(f"{name} {value} is too small; it must be at least {rules['minimum']}")
    if rules["maximum"] is not None and not value <= rules["maximum"]:
        raise ConfigError(f"{name} {value} is too large; it must be at most {rules['maximum']}")


def add_options(parser: argparse.ArgumentParser, settings: type[Settings]) -> None:
    """Adds an option for every field, under its group's heading; one without a default is required."""
    hints = get_type_hints(settings)
    by_name = {entry.name: entry for entry in fields(settings)}
    for entry in {name: by_name[name] for name in (*settings.MOST_USED, *by_name)}.values():
        group = group_of(parser, FIRST_GROUP if entry.name in settings.MOST_USED else entry.metadata["group"])
        kind = _parser(hints[entry.name])
        how: dict[str, Any]
        if kind is bool:
            how = {"action": "store_false" if entry.default else "store_true"}
        elif get_origin(hints[entry.name]) is tuple:
            how = {"action": "append", "metavar": entry.metadata["metavar"]}
        else:
            metavar = entry.metadata["metavar"] or "|".join(entry.metadata["choices"]) or _metavar(entry, kind)
            how = {"type": kind, "required": _is_required(entry), "metavar": metavar}
            how["default"] = None if _is_required(entry) else entry.default
        group.add_argument(_flag(entry), dest=entry.name, help=_help(entry), **how)
    required = [f"{_flag(entry)} {entry.metadata['metavar']}" for entry in fields(settings) if _is_required(entry)]
    parser.usage = " ".join(["%(prog)s", *required, "[options]"])


def group_of(parser: argparse.ArgumentParser, title: str) -> "argparse._ArgumentGroup":
    """Returns the parser's group of options with this heading."""
    known = {group.title: group for group in parser._action_groups}
    return known.get(title) or parser.add_argument_group(title)


def from_namespace(settings: type[T], namespace: argparse.Namespace) -> T:
    """Makes settings from a parsed command line; ConfigError names a value that is out of bounds."""
    return settings(**{entry.name: _given(getattr(namespace, entry.name), entry) for entry in fields(settings)})


def _given(value: Any, entry: "Field[Any]") -> Any:
    """Returns a tuple for an option that may be given several times: argparse collects a list, or None."""
    return tuple(value or entry.default) if isinstance(entry.default, tuple) else value


def _metavar(entry: "Field[Any]", kind: Callable[[str], Any]) -> str:
    if kind is str:
        return entry.name.upper()
    return "S" if entry.name.endswith("_s") else "MS" if entry.name.endswith("_ms") else "N"


def _is_required(entry: "Field[Any]") -> bool:
    return entry.default is MISSING


def _help(entry: "Field[Any]") -> str:
    text = f"{entry.metadata['help']} ({'required' if _is_required(entry) else f'default: {_shown(entry)}'})"
    return text.replace("%", "%%")


def _shown(entry: "Field[Any]") -> str:
    if entry.metadata["shown"] is not None:
        return str(entry.metadata["shown"])
    return "off" if isinstance(entry.default, bool) else str(entry.default)


def _flag(entry: "Field[Any]") -> str:
    """Returns the option's name; of one that is on by default, that which turns it off."""
    return ("--no-" if entry.default is True else "--") + entry.name.replace("_", "-")


def _parser(hint: Any) -> Callable[[str], Any]:
    """Returns a function that parses a value of the plain type behind `X`, `X | None`, or `X | Literal["word"]`."""
    inner = [kind for kind in get_args(hint) or (hint,) if kind is not type(None)]
    if get_origin(hint) is Literal or get_origin(inner[0]) is Literal:
        return str  # `choices` checks the words
    words = [word for kind in inner if get_origin(kind) is Literal for word in get_args(kind)]
    kind: Callable[[str], Any] = str if get_origin(inner[0]) is Literal else inner[0]
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
