"""Where a fleet is remembered: ~/.local/state/goodspeed/fleet/NAME, open to its owner only.

`fleet.json` says how to reach it. Each replica has a folder inside, on the machine that it runs on: how it was started
and which process it is, its peers file, its status file, and what it said on standard error.
"""

import os
import shutil
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from goodspeed.app.fleet.keeping.plan import Plan, number_of
from goodspeed.app.fleet.keeping.processes import Ran, is_running
from goodspeed.errors import ConfigError, reason
from goodspeed.fleet.table import write_whole
from goodspeed.untrusted import read_bytes

MAX_BYTES = 1 << 20
TAIL_BYTES, TAIL_LINES = 8192, 3

T = TypeVar("T")


class Head(Struct, frozen=True):
    """A Ray that `up` started."""

    session: int  # its processes' session, of the operating system
    folder: str  # in which it keeps its sockets and logs


class Record(Struct, frozen=True):
    """How a fleet is reached."""

    plan: Plan
    address: str  # of Ray
    head: Head | None = None  # None: its user runs that Ray


class Started(Struct, frozen=True):
    """How a replica was started."""

    command: tuple[str, ...]
    port: int
    folder: str  # that it runs in


class Folder:
    """A fleet's folder on this machine."""

    def __init__(self, name: str) -> None:
        state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        self.path = Path(state) / "goodspeed" / "fleet" / name
        self.token = self.path / "ray.token"

    def make(self) -> None:
        """Makes it, for its owner only; ConfigError where that cannot be done."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.path.chmod(0o700)
        except OSError as error:
            raise ConfigError(
                f"cannot make the folder {self.path}: {reason(error)}; say another in XDG_STATE_HOME"
            ) from None

    def record(self) -> Record | None:
        """Returns how the fleet is reached; None when no such fleet is up."""
        return read(self.path / "fleet.json", Record)

    def keep(self, record: Record) -> None:
        write_whole(self.path / "fleet.json", msgspec.json.encode(record))

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def replica(self, name: str) -> "ReplicaFolder":
        return ReplicaFolder(self.path / "replicas" / name)

    def replicas(self) -> "dict[str, ReplicaFolder]":
        """Returns the folders of the replicas that ever ran on this machine, by name."""
        paths = sorted((self.path / "replicas").glob("replica-*"), key=lambda path: number_of(path.name))
        return {path.name: ReplicaFolder(path) for path in paths}


class ReplicaFolder:
    """What is written down of one replica."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.start = path / "start.json"
        self.process = path / "process.json"
        self.peers = path / "peers.json"
        self.status = path / "status.json"
        self.log = path / "stderr.log"

    def started(self) -> Started | None:
        return read(self.start, Started)

    def running(self) -> Ran | None:
        """Returns its process if that still runs."""
        ran = read(self.process, Ran)
        return ran if ran is not None and is_running(ran) else None

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def last_said(self) -> str:
        """Returns the last lines of its standard error, as one."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, self.log.stat().st_size - TAIL_BYTES))
                lines = file.read().decode(errors="replace").split("\n")
        except OSError:
            return ""
        return " / ".join([line.strip() for line in lines if line.strip()][-TAIL_LINES:])


def read(path: Path, kind: type[T]) -> T | None:
    """Returns what the file says; None where there is none, or it is damaged."""
    try:
        return msgspec.json.decode(read_bytes(path, MAX_BYTES), type=kind)
    except (OSError, msgspec.MsgspecError):
        return None
