"""A Ray of our own: started on loopback, and ended. Imports nothing of Ray, which reads its settings when imported.

It has a token that nobody else can read, so no other user of the machine reaches it: whoever reaches a Ray can run any
program there.
"""

import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from goodspeed.app.fleet.keeping import processes
from goodspeed.app.fleet.keeping.folders import Folder, Head
from goodspeed.app.fleet.keeping.plan import ROOT, Plan
from goodspeed.errors import ProcessError
from goodspeed.fleet.replicas import MAX_REPLICAS

START_S, REACH_S = 120.0, 3.0
OBJECT_STORE_BYTES = 80_000_000
"""The least that Ray takes: nothing is put there."""

MARKS = ("ray::",)
"""What Ray's workers call themselves; its other processes name its folder."""


def settings(folder: Folder) -> dict[str, str]:
    """Returns what Ray and who reaches it read from the environment: loopback only, a token, no statistics."""
    return {
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # Ray's word for: a cluster of one machine, on loopback
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(folder.token),
        "RAY_USAGE_STATS_ENABLED": "0",
    }


def start(folder: Folder, plan: Plan) -> tuple[str, Head]:
    """Starts a Ray of our own; returns its address. ProcessError where it does not start."""
    _make_token(folder.token)
    own = tempfile.mkdtemp(prefix="goodspeed-ray-")  # short: names of sockets may have 107 characters
    command = [
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--disable-usage-stats"),
        *("--node-ip-address=127.0.0.1", "--port=0", "--include-dashboard=false", "--include-log-monitor=false"),
        *(f"--temp-dir={own}", f"--object-store-memory={OBJECT_STORE_BYTES}"),
        f"--num-cpus={MAX_REPLICAS * plan.cpus}",  # of a machine of the user's own, whose cores nobody counts
    ]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, **settings(folder), "PYTHONPATH": path}
    with tempfile.TemporaryFile() as said:
        started = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True
        )
        head = Head(started.pid, own)
        try:
            status = started.wait(START_S)
            address = (Path(own) / "ray_current_cluster").read_text().strip() if status == 0 else ""
        except (subprocess.TimeoutExpired, OSError):
            started.kill()
            started.wait()
            address = ""
        if not address:
            said.seek(0)
            end(head)
            last = said.read().decode(errors="replace").strip().rpartition("\n")[2]
            raise ProcessError(f"Ray did not start: {last[-300:]}")
    return address, head


def end(head: Head) -> None:
    """Ends every process of a Ray of our own, and removes its folder."""
    marks = (*MARKS, head.folder)
    processes.end(processes.of_session(head.session, [head.folder]), grace_s=5.0)
    processes.end(processes.of_session(head.session, marks), grace_s=2.0)
    shutil.rmtree(head.folder, ignore_errors=True)


def answers(address: str) -> bool:
    """Whether somebody listens there: Ray would wait for minutes. Only HOST:PORT is looked at."""
    host, _, port = address.rpartition(":")
    if "/" in host or not port.isdigit():
        return True
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACH_S).close()
    except OSError:
        return False
    return True


def _make_token(path: Path) -> None:
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_hex(32))
