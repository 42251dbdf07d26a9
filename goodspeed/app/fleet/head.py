"""The record of a running fleet, and the fleet's own Ray on loopback.

Does not import Ray, which reads its settings when imported. Our own Ray requires a token that only its owner can read:
anyone who reaches a Ray can run any program there. This Ray ends with its first process (`ray start --block`), which
ends when any other of Ray's processes does.
"""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

import goodspeed
from goodspeed import files
from goodspeed.app.fleet.options import UpConfig
from goodspeed.errors import ConfigError, ProcessError, reason
from goodspeed.fleet.replicas import MAX_REPLICAS
from goodspeed.untrusted import python_module, read_bytes

START_S, REACH_S, POLL_S = 120.0, 3.0, 0.1


class Record(Struct, frozen=True):
    """A fleet as its user requested it, and the address of its Ray. Names files of keys, but contains no keys."""

    config: UpConfig
    further: tuple[str, ...] = ()  # options of goodspeed-verify
    folder: str = "/"  # where `up` was called: names of files are relative to it
    address: str = ""  # of Ray; "": our own is starting
    pid: int | None = None  # of our own Ray's first process; None: the user runs Ray
    temp: str = ""  # folder of our own Ray's sockets and logs

    def fixed(self, port: int, number: int) -> dict[str, object]:
        """Returns the settings of goodspeed-verify that the fleet decides; see `words`."""
        config = self.config
        http = {}
        if config.http is not None:
            host, _, first = config.http.rpartition(":")
            http = {"http": f"{host}:{int(first) and int(first) + number - 1}"}
        keys = {"key": config.key, "enrolled": config.enrolled}
        bind = f"tcp://{config.host}:{port}"
        return {"model": config.model, "bind": bind, "tp": config.tp, **keys, **http, "peers": None}

    def words(self, port: int, number: int) -> list[str]:
        """Returns the options of goodspeed-verify for a replica at this port. number: of the replica, from 1."""
        words = [f"--{name}={value}" for name, value in self.fixed(port, number).items() if value is not None]
        return [*words, *(["--trusted-network"] if self.config.trusted_network else []), *self.further]

    @property
    def path(self) -> Path:
        return folder(self.config.name)

    def keep(self) -> "Record":
        """Writes the record into the fleet's folder, which only its owner can open."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.path.chmod(0o700)
            files.write_whole(self.path / "fleet.json", msgspec.json.encode(self))
        except OSError as error:
            raise ConfigError(f"cannot write {self.path}: {reason(error)}; set XDG_STATE_HOME to another") from None
        return self

    @property
    def is_there(self) -> bool:
        """True if the fleet's Ray runs. Checked without Ray, which would search for minutes."""
        host, _, port = self.address.rpartition(":")
        with suppress(OSError, ValueError):
            if self.pid is not None:  # another process may have this id, but does not name this folder
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
    """Returns the folder of a fleet's record: goodspeed/fleet/NAME in $XDG_STATE_HOME, by default ~/.local/state."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "goodspeed" / "fleet" / name


def find(name: str) -> Record | None:
    """Returns the record of a fleet; None if no such fleet is up."""
    path = folder(name) / "fleet.json"
    try:
        return msgspec.json.decode(read_bytes(path, 1 << 20), type=Record)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {reason(error)}; set XDG_STATE_HOME to another") from None
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"{path} is not a valid fleet record ({error}); end the fleet with its own release, or remove the file"
        ) from None


def start(record: Record) -> Record:
    """Starts our own Ray, and records its address; ProcessError if it does not start."""
    record.keep()  # fails before Ray starts if the folder is not writable
    temp = Path(tempfile.mkdtemp(prefix="goodspeed-ray-"))  # short: names of sockets may have 107 characters
    record = replace(record, temp=str(temp)).keep()
    files.write_whole(record.settings["RAY_AUTH_TOKEN_PATH"], secrets.token_hex(32).encode())
    command = [
        *(*python_module("ray.scripts.scripts"), "start", "--head", "--block", f"--temp-dir={temp}", "--port=0"),
        *("--node-ip-address=127.0.0.1", "--include-dashboard=false", "--include-log-monitor=false"),
        "--object-store-memory=80000000",  # Ray's minimum: nothing is stored there
        f"--num-cpus={MAX_REPLICAS}",  # on the user's own machine, whose cores are not counted
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
    """Kills our own Ray with its replicas, and removes its files; does not touch a user's Ray."""
    if record.pid is not None and record.is_there:
        with suppress(ProcessLookupError):
            os.killpg(record.pid, signal.SIGKILL)
    if record.temp:
        shutil.rmtree(record.temp, ignore_errors=True)
