"""Settings as frozen dataclasses, and the command-line options made from them.

A field made with `option` carries its help, its choices and its bounds; the command line takes its default from the
dataclass, and the dataclass checks the bounds, so that a wrong value is refused wherever it comes from.
"""

import argparse
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from goodspeed.errors import ConfigError

T = TypeVar("T", bound="Settings")


def option(
    default: Any = MISSING,
    *,
    help: str,
    choices: tuple[str, ...] = (),
    minimum: float | None = None,
    maximum: float | None = None,
    metavar: str | None = None,
) -> Any:
    """A dataclass field that is also a command-line option; bounds are inclusive.

    A type like `int | Literal["auto"]` takes a number within the bounds, or that word.
    """
    metadata = {"help": help, "choices": choices, "minimum": minimum, "maximum": maximum, "metavar": metavar}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Base of the nodes' settings: checks every field's choices and bounds."""

    def __post_init__(self) -> None:
        for entry in fields(self):
            _check(entry, getattr(self, entry.name))


def _check(entry: "Field[Any]", value: Any) -> None:
    name, rules = _flag(entry), entry.metadata
    if value is None or not rules:
        return
    if rules["choices"] and value not in rules["choices"]:
        raise ConfigError(f"{name} {value!r} is unknown; choose one of: {', '.join(rules['choices'])}")
    if isinstance(value, str):
        return  # a word beside numbers has no bounds
    if rules["minimum"] is not None and not value >= rules["minimum"]:
        raise ConfigError(f"{name} {value} is too small; it must be at least {rules['minimum']}")
    if rules["maximum"] is not None and not value <= rules["maximum"]:
        raise ConfigError(f"{name} {value} is too large; it must be at most {rules['maximum']}")


def add_options(parser: argparse.ArgumentParser, settings: type[Settings]) -> None:
    """Adds an option for every field; one without a default is required."""
    hints = get_type_hints(settings)
    for entry in fields(settings):
        kind = _parser(hints[entry.name])
        shared = {"help": entry.metadata["help"], "dest": entry.name}
        if kind is bool:
            parser.add_argument(_flag(entry), action=argparse.BooleanOptionalAction, default=entry.default, **shared)
            continue
        required = entry.default is MISSING
        default = None if required else entry.default
        shown = "" if required or default is None or default == "" else f" (default: {default})"
        shared["help"] += shown.replace("%", "%%")
        metavar = entry.metadata["metavar"] or ("|".join(entry.metadata["choices"]) or None)
        parser.add_argument(_flag(entry), type=kind, default=default, required=required, metavar=metavar, **shared)


def from_namespace(settings: type[T], namespace: argparse.Namespace) -> T:
    """The settings that a parsed command line asks for; ConfigError names a value that is out of bounds."""
    return settings(**{entry.name: getattr(namespace, entry.name) for entry in fields(settings)})


def _flag(entry: "Field[Any]") -> str:
    return "--" + entry.name.replace("_", "-")


def _parser(hint: Any) -> Callable[[str], Any]:
    """What reads a value of the plain type behind `X`, `X | None`, or `X | Literal["word"]`."""
    inner = [kind for kind in get_args(hint) or (hint,) if kind is not type(None)]
    words = [word for kind in inner if get_origin(kind) is Literal for word in get_args(kind)]
    kind: Callable[[str], Any] = inner[0]
    if not words:
        return kind

    def number_or_word(text: str) -> Any:
        try:
            return text if text in words else kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is neither a number nor {' or '.join(words)}") from None

    return number_or_word
