"""A user's own policy, named `module:Class` or `path/file.py:Class` on the command line (docs/POLICY.md).

`load` imports the class and registers it, so that `create` makes it like any other policy. Each allocation is checked:
a user's policy may be wrong, and the nodes rely on valid lengths.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Sequence
from functools import partial
from operator import index

from goodspeed import extensions
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
    register(name)(partial(OwnPolicy, name, extensions.imported(name, "--policy")))


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
