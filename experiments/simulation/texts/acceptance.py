"""Rates at which a simulated draft model agrees with the target.

A process is asked, for each token to draft, with what probability it shall be the target's own. The draw itself is a
hash of the text so far (`text.py`), so the same text is drafted in the same way however often it is tried.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol, TypeAlias

from goodspeed.drafting.tree import ALTERNATIVES
from goodspeed.errors import ConfigError


class Acceptance(Protocol):
    """One session's acceptance process."""

    def rate(self, position: int, offset: int, on_path: bool) -> float:
        """Probability that the token at `position` of the text agrees.

        offset: drafted tokens before it that are not verified yet; on_path: whether all of those agree.
        """
        ...

    def probabilities(self, position: int, offset: int) -> float:
        """The draft model's own probability of that token, all before it being right: it must not know more."""
        return self.rate(position, offset, True)

    def second(self, position: int, on_path: bool) -> float:
        """Probability that its second choice there agrees, if its first does not: what draft nodes claim of it."""
        return ALTERNATIVES[0]


Acceptances: TypeAlias = Callable[[int, int], Acceptance]
"""(number of the client, number of its session) -> the session's process."""


@dataclass(slots=True)
class Independent(Acceptance):
    """Every drafted token agrees with the same probability, as the paper's alpha has it. It may be set anew."""

    alpha: float

    def rate(self, position: int, offset: int, on_path: bool) -> float:
        return self.alpha


class Switching(Acceptance):
    """A user who changes the topic: at every position a new domain is entered with probability `switch`."""

    def __init__(self, alphas: Sequence[float], switch: float, seed: int) -> None:
        if not alphas or not 0.0 <= switch <= 1.0:
            raise ConfigError(f"switching needs domains and a probability, not {alphas!r} and {switch!r}")
        self._alphas = tuple(alphas)
        self._switch = switch
        self._random = Random(seed)
        self._domains: list[int] = []  # of each position, as far as asked

    def domain(self, position: int) -> int:
        while len(self._domains) <= position:
            new = not self._domains or self._random.random() < self._switch
            self._domains.append(self._random.randrange(len(self._alphas)) if new else self._domains[-1])
        return self._domains[position]

    def rate(self, position: int, offset: int, on_path: bool) -> float:
        return self._alphas[self.domain(position)]
