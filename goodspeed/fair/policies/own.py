"""A user's own policy, named `module:Class` or `path/file.py:Class` on the command line (docs/POLICY.md).

`load` imports the class and registers it, so that `create` makes it like any other policy. Each allocation is checked:
a user's policy may be wrong, and the nodes rely on valid lengths.
"""

from __future__ import annotations

import importlib
import importlib.util
import reprlib
import sys
from collections.abc import Callable, Sequence
from functools import partial
from operator import index
from pathlib import Path
from types import ModuleType

from goodspeed.errors import ConfigError, PolicyError
from goodspeed.fair.policies.base import ClientState, Policy, names, register
from goodspeed.fair.policies.gradient import check_fairness


def load(name: str) -> None:
    """Imports and registers a policy named `module:Class` or `path/file.py:Class`; ignores any other name.

    Importing runs the module's code, so pass only names that a person gave on a command line. Raises ConfigError if
    there is no such module or class.
    """
    if name.endswith(".py"):
        raise ConfigError(f"--policy {name} names no class; give it after a colon, as in {name}:MyPolicy")
    if ":" not in name or name in names():
        return
    place, _, class_name = name.rpartition(":")
    try:
        module = _file(Path(place)) if place.endswith(".py") else _module(place)
    except Exception as error:
        raise ConfigError(f"--policy {name}: {place} cannot be imported: {type(error).__name__}: {error}") from error
    make = getattr(module, class_name, None)
    if not callable(make):
        raise ConfigError(f"--policy {name}: {place} has no class {class_name!r}; name the class after the colon")
    register(name)(partial(OwnPolicy, name, make))


def _module(name: str) -> ModuleType:
    """Imports a module, installed or in the current folder. The folder is searched last, so it hides no library."""
    if "" not in sys.path and (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)
    return importlib.import_module(name)


def _file(path: Path) -> ModuleType:
    name = str(path.resolve())  # no other module has such a name
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look up their module there
    spec.loader.exec_module(module)
    return module


class OwnPolicy:
    """Calls a user's own policy, and checks its allocation: PolicyError names the policy and the fault."""

    def __init__(self, name: str, make: Callable[[], Policy]) -> None:
        """Creates the policy, without options. ConfigError if that fails, or if it has no `allocate`."""
        self._name = name
        try:
            self._policy = make()
            self.fairness = check_fairness(getattr(self._policy, "fairness", 1.0))
        except Exception as error:
            raise ConfigError(f"the policy {name} cannot be created: {type(error).__name__}: {error}") from error
        if not callable(getattr(self._policy, "allocate", None)):
            raise ConfigError(f"the policy {name} has no method allocate(clients, budget); see docs/POLICY.md")

    def allocate(self, clients: Sequence[ClientState], budget: int) -> list[int]:
        most = [client.max_length for client in clients]
        try:
            given: object = self._policy.allocate(clients, budget)
        except Exception as error:
            raise PolicyError(f"the policy {self._name} failed: {type(error).__name__}: {error}") from error
        try:
            lengths = [index(length) for length in given]  # type: ignore[attr-defined]
        except TypeError:
            raise PolicyError(
                f"the policy {self._name} returned {reprlib.repr(given)}; it must return whole numbers"
            ) from None
        if wrong := _wrong(lengths, most, budget):
            raise PolicyError(f"the policy {self._name} returned {wrong}")
        return lengths


def _wrong(lengths: Sequence[int], most: Sequence[int], budget: int) -> str | None:
    """Describes the fault of an allocation; None if there is none."""
    if len(lengths) != len(most):
        return f"{len(lengths)} lengths for {len(most)} clients; it must return one for each, in their order"
    for number, (length, allowed) in enumerate(zip(lengths, most, strict=True)):
        if not 0 <= length <= allowed:
            return f"the length {length} for client {number}; it must lie within 0 and its max_length, {allowed}"
    if sum(lengths) > budget:
        return f"{sum(lengths)} tokens in all; the budget is {budget}"
    return None
