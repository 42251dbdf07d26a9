"""Registries of things chosen by name, such as policies; one registry for each kind."""

import inspect
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from goodspeed.errors import ConfigError

T = TypeVar("T")
Factory = TypeVar("Factory", bound=Callable[..., Any])


class Registry(Generic[T]):
    """Creates a T by name, with the keyword options of its factory."""

    def __init__(self, kind: str, unknown: str, error: type[ConfigError] = ConfigError, *, besides: str = "") -> None:
        """kind: word for a T in messages. unknown: beginning of the `error` for an unknown name, which `{name!r}`
        stands for. besides: end of it, what a user may give instead of a name."""
        self._kind = kind
        self._unknown = unknown
        self._error = error
        self._besides = besides
        self._factories: dict[str, Callable[..., T]] = {}

    def register(self, name: str) -> Callable[[Factory], Factory]:
        """Registers a class, or another factory, under `name`; its parameters become the options."""

        def add(factory: Factory) -> Factory:
            self._factories[name] = factory
            return factory

        return add

    def names(self) -> list[str]:
        """Returns the names in alphabetical order."""
        return sorted(self._factories)

    def create(self, name: str, *args: Any, **options: Any) -> T:
        """Creates a T; raises the registry's error for an unknown name, ConfigError for an unknown option."""
        if name not in self._factories:
            choose = f"; choose one of: {', '.join(self.names())}{self._besides}"
            raise self._error(self._unknown.format(name=name) + choose)
        factory = self._factories[name]
        known = list(inspect.signature(factory).parameters)[len(args) :]
        unknown = [option for option in options if option not in known]
        if unknown:
            valid = f"its options are: {', '.join(known)}" if known else "it has no options"
            raise ConfigError(f"{self._kind} {name!r} has no option {', '.join(map(repr, unknown))}; {valid}")
        return factory(*args, **options)
