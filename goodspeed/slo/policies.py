"""The interface of admission policies, and the registry of policies by name; `none` admits nothing new."""

import reprlib
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import numpy as np

from goodspeed.errors import ConfigError, PolicyError
from goodspeed.registry import Misfits, Registry, takes
from goodspeed.slo.feasible import Ask, Course

Policy: TypeAlias = Callable[[Sequence[Ask], Course], Sequence[bool]]
"""Chooses from requests sorted by deadline; the promised ones are feasible together, and stay."""


class OwnPolicy:
    """An admission policy that a user supplies. If it fails, or its choice is not feasible, nothing new is admitted."""

    def __init__(self, name: str, policy: Policy) -> None:
        """Raises ConfigError unless it can be called with two arguments."""
        if not takes(policy, "(ordered, now)"):
            raise ConfigError(f"the admission policy {name} is no function of (ordered, now); see docs/POLICY.md")
        self._policy = policy
        self._misfits = Misfits(f"the admission policy {name}", "this decision promises nothing new")

    def __call__(self, ordered: Sequence[Ask], now: Course) -> list[bool]:
        return self._misfits.answer(lambda: self._checked(ordered, now), nothing_new(ordered, now))

    def _checked(self, ordered: Sequence[Ask], now: Course) -> list[bool]:
        answer: object = self._policy(ordered, now)
        if not isinstance(answer, Iterable):
            raise PolicyError(f"it returned {reprlib.repr(answer)}; it must return a list of True and False")
        chosen = [*answer]
        if len(chosen) != len(ordered):
            raise PolicyError(f"it returned {len(chosen)} answers to {len(ordered)} requests")
        if wrong := [one for one in chosen if not isinstance(one, bool | np.bool_)]:
            raise PolicyError(f"it answered {wrong[0]!r}; each answer must be True or False")
        if any(ask.promised and not is_kept for ask, is_kept in zip(ordered, chosen, strict=True)):
            raise PolicyError("it broke a promise; requests with `promised` stay")
        if now.after_all(ask for ask, is_kept in zip(ordered, chosen, strict=True) if is_kept) is None:
            raise PolicyError("its choice is not feasible: `now.after_all(asks)` is None")
        return [bool(one) for one in chosen]


ADMISSION: Registry[Policy] = Registry("admission policy", "goodspeed.admission", OwnPolicy, own="function")


@ADMISSION.register("none")
def nothing_new(ordered: Sequence[Ask], now: Course) -> list[bool]:
    return [ask.promised for ask in ordered]
