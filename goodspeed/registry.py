"""Policies, orders, engines and draft sources by name: ours, those of installed packages by entry point, and a user's.

Importing runs the module's code. So `Registry.load` is for names of a command line only.
"""

import importlib
import importlib.util
import inspect
import logging
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Any, Generic, TypeVar

from goodspeed.errors import ConfigError, GoodSpeedError, UnknownPolicyError, first_line

logger = logging.getLogger("goodspeed.verify")

T = TypeVar("T")
Rule = TypeVar("Rule", bound=Callable[..., object])


class Registry(Generic[T]):
    """Everything of one kind. Its names are a command line's choices."""

    def __init__(
        self,
        kind: str,
        group: str,
        guard: Callable[[str, Any], T] = lambda name, found: found,
        *,
        modules: Mapping[str, str] | None = None,
        own: str = "",
    ) -> None:
        """kind: what an error calls one of them. group: of the entry points. guard: wraps what is not ours.

        modules: ours that are imported when they are chosen, by name. own: what a user's own is, "class" or "function";
        empty where `load` is not called.
        """
        self.kind, self.group, self._own = kind, group, own
        self._guard = guard
        self._modules = {name: EntryPoint(name, place, group) for name, place in (modules or {}).items()}
        self._known: dict[str, T] = {}

    def register(self, name: str) -> Callable[[Rule], Rule]:
        """Registers a rule, or a constructor of one, under `name`."""

        def add(rule: Rule) -> Rule:
            self._known[name] = rule  # type: ignore[assignment]
            return rule

        return add

    @property
    def _places(self) -> dict[str, EntryPoint]:
        return {found.name: found for found in entry_points(group=self.group)} | self._modules

    @property
    def names(self) -> tuple[str, ...]:
        """The names in alphabetical order. Nothing is imported for them."""
        return tuple(sorted({*self._known, *self._places}))

    def find(self, name: str) -> T:
        """Returns what has that name; imports it if another package has it.

        Raises UnknownPolicyError if there is none, ConfigError if it cannot be imported.
        """
        if name not in self._known:
            place = self._places.get(name)
            if place is None:
                ways = [f"choose one of: {', '.join(self.names)}"] if self.names else []
                if own := self._own.upper():
                    ways.append(f"name one of your own, as MODULE:{own} or FILE.py:{own}")
                raise UnknownPolicyError(f"no {self.kind} is named {name!r}; {'; or '.join(ways)}")
            found = self._imported(name, place.value, place.load)
            self._known[name] = found if name in self._modules else self._guard(name, found)
        return self._known[name]

    def load(self, name: str) -> None:
        """Imports and registers what is named `MODULE:CLASS` or `PATH/FILE.py:CLASS`; ignores any other name.

        Raises ConfigError if there is no such module, or nothing to call of that name in it.
        """
        if name.endswith(".py"):
            raise ConfigError(f"the {self.kind} {name} names no {self._own}; give it after a colon, as in {name}:Mine")
        if ":" not in name or name in self._known:
            return
        place, _, attribute = name.rpartition(":")
        module = self._imported(name, place, lambda: _file(place) if place.endswith(".py") else _module(place))
        found = getattr(module, attribute, None)
        if not callable(found):
            at = "" if place.endswith(".py") else f" ({_origin(module)})"
            what = f"{place}{at} has no {self._own} {attribute!r}; name the {self._own} after the colon"
            raise ConfigError(f"the {self.kind} {name}: {what}")
        self._known[name] = self._guard(name, found)

    def _imported(self, name: str, place: str, load: Callable[[], Any]) -> Any:
        try:
            return load()
        except (Exception, SystemExit) as error:  # whatever the module raises, as a script does that ends itself
            raise ConfigError(f"the {self.kind} {name}: {place} cannot be imported: {_told(error)}") from error


def created(name: str, make: Callable[[], T], method: str, page: str = "docs/POLICY.md") -> T:
    """Creates what is not ours; ConfigError if that fails, or if it has no such method of these parameters.

    name: with its kind, for the error. page: of the documentation.
    """
    try:
        found = make()
    except (Exception, SystemExit) as error:  # whatever its code raises
        raise ConfigError(f"{name} cannot be created: {_told(error)}") from error
    if not takes(getattr(found, method.partition("(")[0], None), method):
        raise ConfigError(f"{name} has no method {method}; see {page}")
    return found


def _told(error: BaseException) -> str:
    """Describes an exception, with the line that raised it unless that is the import system's or ours."""
    lines = [one for one in extract_tb(error.__traceback__) if "importlib" not in one.filename]
    at = f" ({lines[-1].filename}, line {lines[-1].lineno})" if lines and lines[-1].filename != __file__ else ""
    return f"{type(error).__name__}: {error}".removesuffix(": ") + at


def takes(function: Any, call: str) -> bool:
    """True if `function` can be called with as many arguments as `call` has, for example "rank(jobs, now)"."""
    try:
        inspect.signature(function).bind(*call.split(","))
    except TypeError:
        return False
    except ValueError:  # a function in C may have no signature
        return True
    return True


def _module(name: str) -> ModuleType:
    """Imports a module, installed or in the current folder. The folder is searched last, so it hides no library."""
    if "" not in sys.path and (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)
    return importlib.import_module(name)  # noqa: TID251 what a person names on the command line


def _origin(module: ModuleType) -> str:
    """Returns the file of a module, or the folder if it has no `__init__.py`."""
    if (file := getattr(module, "__file__", None)) is not None:
        return str(file)
    return "a part of Python" if module.__name__ in sys.stdlib_module_names else ", ".join(module.__path__)


def _file(place: str) -> ModuleType:
    name = str(Path(place).resolve())  # no other module has such a name
    spec = importlib.util.spec_from_file_location(name, place)
    if spec is None or spec.loader is None:
        raise ImportError(f"{place} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look up their module there
    spec.loader.exec_module(module)
    return module


class Misfits:
    """Reports what a rule of another package does wrong; the node goes on without its answer."""

    def __init__(self, name: str, then: str) -> None:
        """then: what happens instead."""
        self.error: Exception | None = None  # the latest
        self.told: str | None = None  # about it
        self._name, self._then = name, then
        self._number = 0

    def answer(self, ask: Callable[[], T], otherwise: T) -> T:
        """Returns the rule's answer; `otherwise` after an exception."""
        try:
            return ask()
        except Exception as error:
            self.note(error, f"{self._name} failed: {type(error).__name__}: {first_line(error)}")
            return otherwise

    def note(self, error: Exception, what: str) -> None:
        """Counts an error; logs the first, second, fourth and so on, with the traceback of the rule's own."""
        self._number += 1
        self.told = f"{what}; {self._then} (errors so far: {self._number})"
        if self._number.bit_count() == 1:
            own = error.__cause__ if isinstance(error, GoodSpeedError) else error
            logger.error("%s", self.told, exc_info=own)
        self.error = error.with_traceback(None)  # whose frames hold sessions
