"""The settings of a soak and its draft nodes. Plain data; imports nothing heavy."""

from dataclasses import dataclass
from typing import Literal

from tests.faults.soak import schedule
from tests.faults.soak.schedule import Fault

MODELS = ("tiny-draft-s", "tiny-draft-m")


@dataclass(frozen=True)
class Role:
    """A draft node of the soak."""

    name: str
    model: str
    rule: Literal["match", "ratio"]
    is_mortal: bool  # killed at any time; the others only in the first quarter


def roles(num_nodes: int) -> list[Role]:
    """Every second one is mortal, every fourth is under ratio."""
    return [
        Role(
            name=f"edge-{n + 1}",
            model=MODELS[n // 2 % 2],
            rule="ratio" if n % 4 == 2 else "match",
            is_mortal=n % 2 == 1,
        )
        for n in range(num_nodes)
    ]


@dataclass(frozen=True)
class Plan:
    """The settings of a soak."""

    minutes: float
    seed: int = 0
    num_nodes: int = 8
    num_texts: int = 12
    gap_s: float = 8.0

    @property
    def duration_s(self) -> float:
        return self.minutes * 60

    @property
    def cast(self) -> list[Role]:
        return roles(self.num_nodes)

    def faults(self) -> list[Fault]:
        steady = [role.name for role in self.cast if not role.is_mortal]
        mortal = [role.name for role in self.cast if role.is_mortal]
        return schedule.make(self.seed, self.duration_s, steady, mortal, self.gap_s)
