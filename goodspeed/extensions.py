"""Imports what others add: a package's by its entry point's name, a user's own as `MODULE:CLASS` or `PATH.py:CLASS`.

Importing runs the module's code, so pass only names that a person gave on a command line.
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from goodspeed.errors import ConfigError


def packaged(group: str, name: str, option: str, known: Iterable[str] = ()) -> Any:
    """Returns what an installed package has under this entry point.

    ConfigError if there is none, or if it cannot be imported. option: named in the error. known: other possible names.
    """
    others = {found.name: found for found in entry_points(group=group)}
    if name not in others:
        raise ConfigError(f"{option} {name!r} is unknown; use {', '.join(sorted({*known, *others}))}")
    return run(others[name].load, f"{option} {name}", others[name].value)


def imported(name: str, option: str) -> Callable[..., Any]:
    """Returns the class `MODULE:CLASS` or `PATH.py:CLASS`; ConfigError if there is none. option: named in the error."""
    place, _, class_name = name.rpartition(":")
    import_it = _file if place.endswith(".py") else _module
    module = run(lambda: import_it(place), f"{option} {name}", place)
    make: Callable[..., Any] | None = getattr(module, class_name, None)
    if not callable(make):
        raise ConfigError(f"{option} {name}: {place} has no class {class_name!r}; name the class after the colon")
    return make


def run(load: Callable[[], Any], what: str, place: str) -> Any:
    """Returns what `load` imports from `place`; ConfigError, which names `what`, if that fails."""
    try:
        return load()
    except Exception as error:  # whatever the module raises
        raise ConfigError(f"{what}: {place} cannot be imported: {type(error).__name__}: {error}") from error


def _module(name: str) -> ModuleType:
    """Imports a module, installed or in the current folder. The folder is searched last, so it hides no library."""
    if "" not in sys.path and (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)
    return importlib.import_module(name)


def _file(place: str) -> ModuleType:
    name = str(Path(place).resolve())  # no other module has such a name
    spec = importlib.util.spec_from_file_location(name, place)
    if spec is None or spec.loader is None:
        raise ImportError(f"{place} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look up their module there
    spec.loader.exec_module(module)
    return module
