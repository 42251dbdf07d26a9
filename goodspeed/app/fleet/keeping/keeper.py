"""The supervisor of one replica: starts its process, and starts it again when it ends or hangs. Knows nothing of Ray.

A keeper that comes back after a crash of its own finds the process that it had started, and keeps that.
"""

import math
import signal
import socket
import subprocess
import sys
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from goodspeed.app.fleet.keeping import processes
from goodspeed.app.fleet.keeping.folders import ReplicaFolder, Started, read
from goodspeed.app.fleet.keeping.plan import EVERYWHERE, ROOT, Plan, environment, number_of, verify_command
from goodspeed.app.fleet.keeping.processes import Ran
from goodspeed.fleet import table as peers
from goodspeed.fleet.replicas import Load, Replica
from goodspeed.fleet.table import Table, write_whole

HUNG_S = 10.0
"""A process that has told nothing for so long is killed; it tells something each second."""

DRAIN_S = 60.0
"""How long a process may take to leave before it is killed."""

PATIENCE_S = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0)
"""Waited before the next start, by how many have failed in a row."""

LAUNCH_S = 60.0

State: TypeAlias = Literal["starting", "ready", "draining", "failing", "left"]


class Report(Struct, frozen=True):
    """What a keeper says of its replica."""

    name: str
    endpoint: str
    state: State
    num_restarts: int = 0
    pid: int | None = None
    why: str = ""  # it ended last
    public_key: str | None = None
    load: Load | None = None  # only of one that is ready or draining

    @property
    def replica(self) -> Replica:
        return Replica(self.name, self.endpoint, self.public_key, self.load)


class Keeper:
    """Keeps one replica running. `step` is to be called each second."""

    def __init__(
        self, plan: Plan, name: str, folder: ReplicaFolder, address: str, now: float, *, hung_s: float = HUNG_S
    ) -> None:
        """address: of this machine, where the plan's host is every address. Adopts a process that runs already."""
        self.name = name
        self._plan = plan
        self._folder = folder
        self._address = address
        self._hung_s = hung_s
        self._drain_by: float | None = None
        self._num_starts = 0
        self._num_failed = 0  # starts in a row that never became ready
        self._why = ""
        self._start_at = now
        self._load: Load | None = None
        self._heard_at = now
        folder.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._port = self._find_port()
        self._ran = self._adopt()

    @property
    def endpoint(self) -> str:
        """Where draft nodes reach the replica."""
        host = self._address if self._plan.host in EVERYWHERE else self._plan.host
        return f"tcp://{host}:{self._port}"

    def step(self, now: float) -> Report:
        """Looks at the process, and does what is to be done."""
        if self._ran is not None and not processes.is_running(self._ran):
            self._ended(now)
        if self._ran is not None:
            self._listen(self._ran, now)
        elif self._drain_by is None and now >= self._start_at:
            self._start(now)
        return self._report()

    def drain(self, now: float, timeout_s: float = DRAIN_S) -> None:
        """Tells the process to leave, or kills it after timeout_s; it is not started again."""
        if self._drain_by is None and self._ran is not None:
            processes.send(self._ran, signal.SIGTERM)
        self._drain_by = min(now + timeout_s, self._drain_by if self._drain_by is not None else math.inf)

    def write_peers(self, table: Table) -> None:
        """Tells the process who is in the fleet; a table without it says nothing to it."""
        if table.find(self.name) is not None:
            peers.write(self._folder.peers, table)

    def _report(self) -> Report:
        pid = self._ran.pid if self._ran is not None else None
        restarts = max(0, self._num_starts - 1)
        return Report(
            self.name, self.endpoint, self._state, restarts, pid, self._why, self._plan.public_key, self._load
        )

    @property
    def _state(self) -> State:
        if self._drain_by is not None:
            return "left" if self._ran is None else "draining"
        if self._load is not None:
            return "draining" if self._load.is_draining else "ready"
        return "failing" if self._num_failed else "starting"

    def _listen(self, ran: Ran, now: float) -> None:
        load = read(self._folder.status, Load)
        if load is not None and load != self._load:
            self._load, self._heard_at, self._num_failed = load, now, 0
        is_hung = self._load is not None and now - self._heard_at > self._hung_s
        is_late = self._drain_by is not None and now > self._drain_by
        if is_hung or is_late:
            processes.send(ran, signal.SIGKILL)
            self._why = f"it told nothing for {self._hung_s:g} s" if is_hung else "it did not leave in time"

    def _ended(self, now: float) -> None:
        was_ready = self._load is not None
        if self._drain_by is not None:
            self._folder.remove()
        self._why = self._folder.last_said() or self._why or "it said nothing"
        self._ran = self._load = None
        self._num_failed = 0 if was_ready else self._num_failed + 1
        self._start_at = now if was_ready else now + PATIENCE_S[min(self._num_failed, len(PATIENCE_S)) - 1]

    def _start(self, now: float) -> None:
        self._folder.status.unlink(missing_ok=True)
        self._folder.process.unlink(missing_ok=True)
        self.write_peers(self._known())
        write_whole(self._folder.start, msgspec.json.encode(self._wanted()))
        command = [sys.executable, "-m", "goodspeed.app.fleet.keeping.launch", str(self._folder.path)]
        subprocess.run(command, cwd=ROOT, env=environment(), timeout=LAUNCH_S, check=False)
        self._ran, self._num_starts, self._heard_at = read(self._folder.process, Ran), self._num_starts + 1, now
        if self._ran is None:
            self._ended(now)

    def _known(self) -> Table:
        """Returns the fleet as it was known last, with this replica as it is."""
        before = read(self._folder.peers, Table)
        others = [replica for replica in before.replicas if replica.name != self.name] if before is not None else []
        others = [replica for replica in others if replica.endpoint != self.endpoint]
        return Table((self._report().replica, *others))

    def _wanted(self) -> Started:
        files = [f"--peers={self._folder.peers}", f"--replica={self.name}", f"--status={self._folder.status}"]
        command = verify_command([*self._plan.words(self._plan.bind(self._port)), *files])
        return Started(tuple(command), self._port, self._plan.folder)

    def _adopt(self) -> Ran | None:
        """Returns the process that runs already; one that was started otherwise is ended."""
        ran = self._folder.running()
        if ran is None:
            return None
        if self._folder.started() != self._wanted():
            processes.end([ran], grace_s=DRAIN_S)
            return None
        self._num_starts = 1
        return ran

    def _find_port(self) -> int:
        """Returns the port of before, or the one that the plan gives, or any that is free."""
        if self._plan.port:
            return self._plan.port + number_of(self.name) - 1
        before = self._folder.started()
        if before is not None:
            return before.port
        with socket.socket() as probe:
            probe.bind(("", 0))
            return int(probe.getsockname()[1])
