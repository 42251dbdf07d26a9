"""The settings of a soak, its draft nodes, and which fault strikes whom and when, drawn from a seed. Plain data.

Two kinds of draft nodes: steady ones live through all but the first quarter of the run, so that slopes can be told
from their memory; mortal ones are killed at any time. The verify node is killed in the first quarter only.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

VERIFY = "verify"  # the name under which a fault strikes the verify node


@dataclass(frozen=True)
class Kind:
    """The share of a fault among the others, its duration and its strength."""

    share: int
    shortest_s: float
    longest_s: float
    strength: tuple[float, float] = (0.0, 0.0)
    unit: str = ""


OF_DRAFT_NODES = {
    "delay": Kind(3, 5.0, 30.0, (0.02, 0.25), "s each way"),
    "jitter": Kind(3, 5.0, 30.0, (0.02, 0.15), "s at most"),
    "throttle": Kind(2, 5.0, 20.0, (3e3, 3e4), "bytes/s"),
    "resets": Kind(3, 10.0, 30.0, (0.02, 0.3), "per second"),
    "cut": Kind(3, 0.2, 8.0),
    "blackhole": Kind(3, 0.5, 8.0),
    "half_open_up": Kind(2, 2.0, 8.0),
    "half_open_down": Kind(2, 2.0, 8.0),
    "freeze": Kind(3, 0.5, 8.0),
    "revoke": Kind(3, 1.0, 8.0),
    "kill": Kind(3, 0.0, 4.0),  # until it is started again
}
OF_THE_VERIFY_NODE = {"freeze": Kind(1, 0.5, 5.0)}

VERIFY_SHARE = 0.03  # the share of faults that strike the verify node, and so everybody
REST_S = 12.0  # peace for one node after its fault, in which texts come to their end
START_S = 20.0  # a killed node is not there again before
KILLS_OF_VERIFY = (0.12, 0.25)
"""Parts of the run after which the verify node is killed; only the last one in a run of a few minutes."""

LONG_S = 600.0


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong, so many seconds after the beginning, for so long."""

    at_s: float
    kind: str
    whom: str
    duration_s: float
    strength: float = 0.0

    def __str__(self) -> str:
        kinds = OF_THE_VERIFY_NODE if self.whom == VERIFY else OF_DRAFT_NODES
        unit = kinds[self.kind].unit if self.kind in kinds else ""
        strength = f", {self.strength:.3g} {unit}" if unit else ""
        return f"{self.at_s:7.1f} s  {self.whom:<8} {self.kind} for {self.duration_s:.1f} s{strength}"


def make(seed: int, duration_s: float, steady: Sequence[str], mortal: Sequence[str], gap_s: float) -> list[Fault]:
    """Faults in the order of their time, on average one in gap_s; none at all in the last part of the run."""
    rng = random.Random(seed)
    quiet_s = min(30.0, duration_s / 4)
    kills = KILLS_OF_VERIFY if duration_s >= LONG_S else KILLS_OF_VERIFY[-1:]
    faults = [Fault(part * duration_s, "kill", VERIFY, rng.uniform(0.0, 2.0)) for part in kills]
    free_at = dict.fromkeys((VERIFY, *steady, *mortal), 0.0)
    at_s = min(5.0, duration_s / 10)
    while (at_s := at_s + rng.expovariate(1 / gap_s)) < duration_s - quiet_s:
        may_be_killed = {*mortal, *(steady if at_s < duration_s / 4 else ())}
        fault = _one(rng, at_s, _whom(rng, free_at, at_s), may_be_killed, longest_s=duration_s / 6)
        if fault is None or at_s + fault.duration_s > duration_s - quiet_s:
            continue
        if fault.whom == VERIFY and any(abs(at_s - part * duration_s) < START_S for part in kills):
            continue  # it may not be there
        faults.append(fault)
        pause_s = REST_S + (START_S if fault.kind == "kill" else 0.0)
        free_at[fault.whom] = at_s + fault.duration_s + pause_s
    return sorted(faults, key=lambda fault: fault.at_s)


def _whom(rng: random.Random, free_at: dict[str, float], at_s: float) -> str | None:
    """Somebody who has had rest."""
    drafts = [name for name, free in free_at.items() if free <= at_s and name != VERIFY]
    if rng.random() < VERIFY_SHARE:
        return VERIFY if free_at[VERIFY] <= at_s else None
    return rng.choice(drafts) if drafts else None


def _one(
    rng: random.Random, at_s: float, whom: str | None, may_be_killed: set[str], *, longest_s: float
) -> Fault | None:
    if whom is None:
        return None
    kinds = dict(OF_THE_VERIFY_NODE if whom == VERIFY else OF_DRAFT_NODES)
    if whom not in may_be_killed:
        kinds.pop("kill", None)
    [name] = rng.choices(list(kinds), [kind.share for kind in kinds.values()])
    kind = kinds[name]
    low, high = kind.strength
    strength = low * (high / low) ** rng.random() if low else 0.0  # small ones as often as large ones
    duration_s = rng.uniform(kind.shortest_s, max(kind.shortest_s, min(kind.longest_s, longest_s)))
    return Fault(at_s, name, whom, duration_s, strength)


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
        Role(f"edge-{n + 1}", MODELS[n // 2 % 2], "ratio" if n % 4 == 2 else "match", is_mortal=n % 2 == 1)
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
        return make(self.seed, self.duration_s, steady, mortal, self.gap_s)
