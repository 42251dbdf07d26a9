"""What the replicas of a fleet are started with. Plain data that Ray carries as JSON. Knows nothing about Ray."""

import os
import sys
from pathlib import Path

from msgspec import Struct

import goodspeed
from goodspeed.fleet.scaling import Limits

ROOT = Path(goodspeed.__file__).parents[1]
"""Folder of the packages `goodspeed`, `draft_node` and `verify_node`."""

EVERYWHERE = ("*", "0.0.0.0", "[::]")
"""Hosts that one can listen at, and not connect to."""


class Plan(Struct, frozen=True, kw_only=True):
    """A fleet as its user asked for it."""

    name: str
    model: str
    replicas: int
    max_replicas: int
    full_round_s: float | None = None
    host: str = "127.0.0.1"
    port: int = 5555  # of the first replica, each next one has the next; 0: any free ones
    key: str | None = None
    public_key: str | None = None  # of `key`
    enrolled: str | None = None
    trusted_network: bool = False
    tp: int = 1
    gpus: int = 0  # of each replica
    cpus: int = 1
    further: tuple[str, ...] = ()  # options of goodspeed-verify
    folder: str = "/"  # in which `up` was said: names of files are relative to it

    @property
    def limits(self) -> Limits:
        return Limits(self.replicas, self.max_replicas, self.full_round_s)

    def words(self, bind: str) -> list[str]:
        """Returns the options of goodspeed-verify but for those of its folder."""
        words = [f"--model={self.model}", f"--bind={bind}"]
        words += [f"--key={self.key}"] if self.key is not None else []
        words += [f"--enrolled={self.enrolled}"] if self.enrolled is not None else []
        words += ["--trusted-network"] if self.trusted_network else []
        words += [f"--tp={self.tp}"] if self.tp > 1 else []
        return [*words, *self.further]

    def bind(self, port: int) -> str:
        return f"tcp://{self.host}:{port}"


def replica_name(number: int) -> str:
    """Returns the name of the replica of this number, from 1 on."""
    return f"replica-{number}"


def number_of(name: str) -> int:
    """Returns the number of the replica of this name."""
    return int(name.rpartition("-")[2])


def verify_command(words: list[str]) -> list[str]:
    """Returns the command of a verify node with these options."""
    return [sys.executable, "-P", "-m", "verify_node", *words]


def environment() -> dict[str, str]:
    """Returns a node's environment: ours without what is meant for Ray, and ROOT on the import path."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    path = os.pathsep.join(filter(None, [str(ROOT), ours.get("PYTHONPATH")]))
    return {**ours, "PYTHONUTF8": "1", "PYTHONPATH": path}
