"""The record of a fleet that is up, and a Ray of its own, on loopback.

Does not import Ray, which reads its settings when imported. That Ray asks for a token that only its owner can read:
whoever reaches a Ray can run any program there. It ends with its first process (`ray start --block`), and that ends
when any other one of it does.
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
from goodspeed.app.fleet.options import UpConfig
from goodspeed.errors import ConfigError, ProcessError, reason
from goodspeed.fleet.replicas import MAX_REPLICAS
from goodspeed.fleet.table import write_whole
from goodspeed.untrusted import read_bytes

START_S, REACH_S, POLL_S = 120.0, 3.0, 0.1


class Record(Struct, frozen=True):
    """A fleet as its user asked for it, and how its Ray is reached. Keys stay in their files, which are named here."""

    config: UpConfig
    further: tuple[str, ...] = ()  # options of goodspeed-verify
    folder: str = "/"  # in which `up` was said: names of files are relative to it
    address: str = ""  # of Ray; "": our own is being started
    pid: int | None = None  # of our own Ray's first process; None: its user runs that Ray
    temp: str = ""  # where our own Ray keeps its sockets and logs

    def words(self, port: int) -> list[str]:
        """Returns the options of goodspeed-verify for a replica at this port."""
        config = self.config
        words = [f"--model={config.model}", f"--bind=tcp://{config.host}:{port}", f"--tp={config.tp}"]
        words += [f"--key={config.key}", f"--enrolled={config.enrolled}"] if config.key is not None else []
        return [*words, *(["--trusted-network"] if config.trusted_network else []), *self.further]

    @property
    def path(self) -> Path:
        return folder(self.config.name)

    def keep(self) -> "Record":
        """Writes the record into the fleet's folder, which is open to its owner only."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.path.chmod(0o700)
            write_whole(self.path / "fleet.json", msgspec.json.encode(self))
        except OSError as error:
            raise ConfigError(f"cannot write {self.path}: {reason(error)}; say another in XDG_STATE_HOME") from None
        return self

    @property
    def is_there(self) -> bool:
        """True if the fleet's Ray runs: Ray itself would look for it for minutes."""
        host, _, port = self.address.rpartition(":")
        with suppress(OSError, ValueError):
            if self.pid is not None:  # another process may have that id, but does not name that folder
                return self.temp.encode() in Path(f"/proc/{self.pid}/cmdline").read_bytes()
            socket.create_connection((host.strip("[]"), int(port)), REACH_S).close()
            return True
        return self.address == "auto"

    @property
    def settings(self) -> dict[str, str]:
        """Environment of our own Ray: loopback only (a cluster of one machine), a token, no statistics, no niceness."""
        token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(self.path / "ray.token")}
        fixed = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
        return token | fixed


def folder(name: str) -> Path:
    """Returns where a fleet is remembered: ~/.local/state/goodspeed/fleet/NAME."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "goodspeed" / "fleet" / name


def find(name: str) -> Record | None:
    """Returns the record of a fleet; None when no such fleet is up."""
    with suppress(OSError, msgspec.MsgspecError, ConfigError):
        return msgspec.json.decode(read_bytes(folder(name) / "fleet.json", 1 << 20), type=Record)
    return None


def start(record: Record) -> Record:
    """Starts a Ray of our own, and writes down how it is reached; ProcessError where it does not start."""
    temp = Path(tempfile.mkdtemp(prefix="goodspeed-ray-"))  # short: names of sockets may have 107 characters
    record = replace(record, temp=str(temp)).keep()
    write_whole(record.settings["RAY_AUTH_TOKEN_PATH"], secrets.token_hex(32).encode())
    command = [
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", f"--temp-dir={temp}", "--port=0"),
        *("--node-ip-address=127.0.0.1", "--include-dashboard=false", "--include-log-monitor=false"),
        "--object-store-memory=80000000",  # the least that Ray takes: nothing is put there
        f"--num-cpus={MAX_REPLICAS * record.config.cpus}",  # of a machine of the user's own, whose cores nobody counts
    ]
    path = os.pathsep.join(filter(None, [str(Path(goodspeed.__file__).parents[1]), os.environ.get("PYTHONPATH")]))
    own = {**os.environ, **record.settings, "PYTHONPATH": path}
    with (temp / "start.log").open("wb") as log:
        ray = subprocess.Popen(
            command, env=own, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    record, deadline = replace(record, pid=ray.pid).keep(), time.monotonic() + START_S
    while ray.poll() is None and time.monotonic() < deadline:
        with suppress(OSError):
            return replace(record, address=(temp / "ray_current_cluster").read_text().strip()).keep()
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
