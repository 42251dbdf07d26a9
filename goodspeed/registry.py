"""Rules of one kind by name: the shipped ones, those of installed packages by entry point, and those of a file."""

import logging
from collections.abc import Callable
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from goodspeed import extensions
from goodspeed.errors import ConfigError, UnknownPolicyError, first_line

logger = logging.getLogger("goodspeed.verify")

T = TypeVar("T")
Rule = TypeVar("Rule", bound=Callable[..., object])


class Registry(Generic[T]):
    """One kind of rules. Its names are a command line's choices."""

    def __init__(self, kind: str, group: str, guard: Callable[[str, T], T], *, takes: str = "") -> None:
        """kind: what an error calls a rule. group: of the entry points. guard: wraps a rule that is not ours.

        takes: what else an error tells to choose.
        """
        self.kind, self.group, self._takes = kind, group, takes
        self._guard = guard
        self._known: dict[str, T] = {}

    def register(self, name: str) -> Callable[[Rule], Rule]:
        """Registers a rule, or a constructor of one, under `name`."""

        def add(rule: Rule) -> Rule:
            self._known[name] = rule  # type: ignore[assignment]
            return rule

        return add

    @cached_property
    def _others(self) -> dict[str, EntryPoint]:
        return {found.name: found for found in entry_points(group=self.group)}

    @property
    def names(self) -> tuple[str, ...]:
        """The names in alphabetical order. Nothing is imported for them."""
        return tuple(sorted({*self._known, *self._others}))

    def find(self, name: str) -> T:
        """Returns the rule of that name; imports it if another package has it.

        Raises UnknownPolicyError if there is none, ConfigError if its package cannot be imported.
        """
        if name in self._known:
            return self._known[name]
        if name not in self._others:
            raise UnknownPolicyError(
                f"no {self.kind} is named {name!r}; choose one of: {', '.join(self.names)}{self._takes}"
            )
        place = self._others[name]
        rule = extensions.run(place.load, f"the {self.kind} {name}", place.value)
        self._known[name] = self._guard(name, rule)
        return self._known[name]

    def load(self, name: str) -> None:
        """Imports and registers a rule named `module:Name` or `path/file.py:Name`; ignores any other name.

        Importing runs the module's code, so pass only names that a person gave on a command line. Raises ConfigError if
        there is no such module or class.
        """
        if name.endswith(".py"):
            raise ConfigError(f"--{self.kind} {name} names no class; give it after a colon, as in {name}:MyPolicy")
        if ":" not in name or name in self._known:
            return
        rule: Any = extensions.imported(name, f"--{self.kind}")
        self._known[name] = self._guard(name, rule)


class Misfits:
    """Reports what a rule of another package does wrong; the node goes on without its answer."""

    def __init__(self, name: str, then: str) -> None:
        """then: what happens instead."""
        self._name, self._then = name, then
        self._number = 0

    def create(self, make: Callable[[], T], method: str) -> T:
        """Creates a rule; ConfigError if that fails, or if it lacks the method, which is named with its parameters."""
        try:
            rule = make()
        except Exception as error:
            raise ConfigError(f"{self._name} cannot be created: {type(error).__name__}: {error}") from error
        if not callable(getattr(rule, method.partition("(")[0], None)):
            raise ConfigError(f"{self._name} has no method {method}; see docs/POLICY.md")
        return rule

    def answer(self, ask: Callable[[], T], otherwise: T) -> T:
        """Returns the rule's answer; `otherwise` after an exception: logs the first, second, fourth and so on."""
        try:
            return ask()
        except Exception as error:
            self._number += 1
            if self._number.bit_count() == 1:
                what = f"{self._name} failed: {type(error).__name__}: {first_line(error)}"
                logger.error("%s; %s (errors so far: %d)", what, self._then, self._number, exc_info=error)
            return otherwise
