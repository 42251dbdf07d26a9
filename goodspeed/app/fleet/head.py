"""A fleet's folder, and a Ray of its own, on loopback. Does not import Ray, which reads its settings when imported.

That Ray asks for a token that only its owner can read: whoever reaches a Ray can run any program there. It ends with
its first process (`ray start --block`), and that ends when any other one of it does.
"""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

import goodspeed
from goodspeed.app.fleet.options import Plan
from goodspeed.errors import ConfigError, ProcessError, reason
from goodspeed.fleet.replicas import MAX_REPLICAS
from goodspeed.fleet.table import write_whole
from goodspeed.untrusted import read_bytes

START_S, REACH_S, POLL_S = 120.0, 3.0, 0.1


class Record(Struct, frozen=True):
    """How a fleet is reached."""

    plan: Plan
    address: str = ""  # of Ray; "": our own is being started
    pid: int | None = None  # of our own Ray's first process; None: its user runs that Ray
    temp: str = ""  # where our own Ray keeps its sockets and logs

    @property
    def is_there(self) -> bool:
        """Whether the fleet's Ray runs: Ray itself would look for it for minutes."""
        host, _, port = self.address.rpartition(":")
        with suppress(OSError, ValueError):
            if self.pid is not None:  # another process may have that id, but does not name that folder
                return self.temp.encode() in Path(f"/proc/{self.pid}/cmdline").read_bytes()
            socket.create_connection((host.strip("[]"), int(port)), REACH_S).close()
            return True
        return self.address == "auto"


class Folder:
    """Where a fleet is remembered: ~/.local/state/goodspeed/fleet/NAME, open to its owner only."""

    def __init__(self, name: str) -> None:
        state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        self.path = Path(state) / "goodspeed" / "fleet" / name

    def record(self) -> Record | None:
        """Returns how the fleet is reached; None when no such fleet is up."""
        with suppress(OSError, msgspec.MsgspecError, ConfigError):
            return msgspec.json.decode(read_bytes(self.path / "fleet.json", 1 << 20), type=Record)
        return None

    def keep(self, record: Record) -> Record:
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.path.chmod(0o700)
            write_whole(self.path / "fleet.json", msgspec.json.encode(record))
        except OSError as error:
            raise ConfigError(f"cannot write {self.path}: {reason(error)}; say another in XDG_STATE_HOME") from None
        return record

    @property
    def settings(self) -> dict[str, str]:
        """What our own Ray reads from the environment: loopback only, a token, no statistics, and replicas that are not
        behind all other processes of the machine."""
        only_loopback = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # Ray's word for: a cluster of one machine
        token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(self.path / "ray.token")}
        return {**only_loopback, **token, "RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}


def start(folder: Folder, plan: Plan) -> Record:
    """Starts a Ray of our own, and writes down how it is reached; ProcessError where it does not start."""
    folder.keep(Record(plan))
    write_whole(folder.settings["RAY_AUTH_TOKEN_PATH"], secrets.token_hex(32).encode())
    temp = Path(tempfile.mkdtemp(prefix="goodspeed-ray-"))  # short: names of sockets may have 107 characters
    command = [
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", f"--temp-dir={temp}", "--port=0"),
        *("--node-ip-address=127.0.0.1", "--include-dashboard=false", "--include-log-monitor=false"),
        "--object-store-memory=80000000",  # the least that Ray takes: nothing is put there
        f"--num-cpus={MAX_REPLICAS * plan.config.cpus}",  # of a machine of the user's own, whose cores nobody counts
    ]
    path = os.pathsep.join(filter(None, [str(Path(goodspeed.__file__).parents[1]), os.environ.get("PYTHONPATH")]))
    own = {**os.environ, **folder.settings, "PYTHONPATH": path}
    with (temp / "start.log").open("wb") as log:
        ray = subprocess.Popen(
            command, env=own, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    record, deadline = folder.keep(Record(plan, pid=ray.pid, temp=str(temp))), time.monotonic() + START_S
    while ray.poll() is None and time.monotonic() < deadline:
        with suppress(OSError):
            return folder.keep(replace(record, address=(temp / "ray_current_cluster").read_text().strip()))
        time.sleep(POLL_S)
    last = (temp / "start.log").read_text(errors="replace").strip().rpartition("\n")[2]
    end(record)
    raise ProcessError(f"Ray did not start: {last[-300:]}")


def end(record: Record) -> None:
    """Kills our own Ray, with its replicas, and removes what it wrote; leaves a Ray of the user's alone."""
    if record.pid is not None and record.is_there:
        with suppress(ProcessLookupError):
            os.killpg(record.pid, signal.SIGKILL)
    if record.temp:
        shutil.rmtree(record.temp, ignore_errors=True)
