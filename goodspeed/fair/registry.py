"""Things that are chosen by name, such as policies: one registry for each kind."""

import inspect
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from goodspeed.errors import ConfigError

T = TypeVar("T")
Factory = TypeVar("Factory", bound=Callable[..., Any])


class Registry(Generic[T]):
    """Makes a T by name, with the keyword options that its factory takes."""

    def __init__(self, kind: str, unknown: str, error: type[ConfigError] = ConfigError) -> None:
        """kind: what messages call a T. unknown: begins the `error` for an unknown name; `{name!r}` stands for it."""
        self._kind = kind
        self._unknown = unknown
        self._error = error
        self._factories: dict[str, Callable[..., T]] = {}

    def register(self, name: str) -> Callable[[Factory], Factory]:
        """Makes a class, or another factory, known by `name`; its parameters become the options."""

        def add(factory: Factory) -> Factory:
            self._factories[name] = factory
            return factory

        return add

    def names(self) -> list[str]:
        """Returns the names in alphabetical order."""
        return sorted(self._factories)

    def create(self, name: str, *args: Any, **options: Any) -> T:
        """A new T; raises the registry's error for an unknown name, ConfigError for an option that it does not have."""
        if name not in self._factories:
            raise self._error(f"{self._unknown.format(name=name)}; choose one of: {', '.join(self.names())}")
        factory = self._factories[name]
        known = list(inspect.signature(factory).parameters)[len(args) :]
        unknown = [option for option in options if option not in known]
        if unknown:
            valid = f"its options are: {', '.join(known)}" if known else "it has no options"
            raise ConfigError(f"{self._kind} {name!r} has no option {', '.join(map(repr, unknown))}; {valid}")
        return factory(*args, **options)
