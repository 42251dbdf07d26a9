"""The registry of policies by name, with the checks of a policy that is not ours (docs/POLICY.md)."""

import reprlib
from collections.abc import Callable, Sequence
from functools import partial
from inspect import signature
from operator import index
from typing import Any

from goodspeed.errors import ConfigError, PolicyError
from goodspeed.fair.policies.base import ClientState, Policy, check_fairness
from goodspeed.registry import Registry, created


class OwnPolicy:
    """Calls a user's own policy, and checks its allocation: PolicyError names the policy and the fault."""

    def __init__(self, name: str, make: Callable[[], Policy]) -> None:
        """Creates the policy, without options. ConfigError if that fails, or if it has no `allocate`."""
        self._name = name
        self._policy = created(f"the policy {name}", make, "allocate(clients, budget)")
        try:
            self.fairness = check_fairness(getattr(self._policy, "fairness", 1.0))
        except ConfigError as error:
            raise ConfigError(f"the policy {name}: {error}") from None

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
                f"the policy {self._name} returned {reprlib.repr(given)}; it must return a list of whole numbers"
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


POLICIES: Registry[Callable[..., Policy]] = Registry(
    "policy", "goodspeed.policies", lambda name, make: partial(OwnPolicy, name, make), own="class"
)
"""Constructors of policies, by name; their parameters are the options."""

register, load = POLICIES.register, POLICIES.load


def names() -> list[str]:
    """Returns the names in alphabetical order."""
    return [*POLICIES.names]


def create(name: str, **options: Any) -> Policy:
    """Creates a policy. Raises UnknownPolicyError for an unknown name, ConfigError for an unknown option."""
    make = POLICIES.find(name)
    known = list(signature(make).parameters)
    unknown = [option for option in options if option not in known]
    if unknown:
        valid = f"its options are: {', '.join(known)}" if known else "it has no options"
        raise ConfigError(f"policy {name!r} has no option {', '.join(map(repr, unknown))}; {valid}")
    return make(**options)
