"""Holds HTTP connections as an attacker would: `python -m tests.serving.web.attackers KIND PORT NUMBER`.

It tries all connections at once, says so in a line, and keeps what it got until its standard input ends; meanwhile it
makes them anew, one after the other.
"""

import resource
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

HEAD = b" HTTP/1.1\r\nHost: localhost\r\n"

KINDS = {
    "models": (b"GET /v1/models" + HEAD + b"\r\n") * 40_000,
    "health": (b"GET /health" + HEAD + b"\r\n") * 40_000,
    "document": (b"GET /openapi.json" + HEAD + b"\r\n") * 200,
    "dripping": b"GET /health" + HEAD,  # and one byte more every ten seconds
    "incomplete": b"POST /v1/completions" + HEAD + b"Content-Length: 100\r\n\r\nhalf",
    "silent": b"",
}
"""Bytes that are sent on each connection, of which no answer is ever read."""

AGAIN_S = 0.05
"""Interval at which one of the connections is made anew."""


@contextmanager
def attacking(kind: str, port: int, number: int) -> Iterator[None]:
    """Attacks from when all connections were tried until the context ends."""
    command = [sys.executable, "-m", "tests.serving.web.attackers", kind, str(port), str(number)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            if not process.stdout or not process.stdout.readline():
                raise RuntimeError(f"the attackers ended with {process.wait()}")
            yield
        finally:
            process.communicate(b"")


def attack(port: int, words: bytes) -> socket.socket | None:
    """A connection on which so much was said as was taken at once; None where there is none."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
    try:
        connection.settimeout(5)
        connection.connect(("127.0.0.1", port))
        connection.setblocking(False)
        if words:
            connection.send(words)
    except OSError:
        connection.close()
        return None
    return connection


def main() -> None:
    kind, port, number = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard != resource.RLIM_INFINITY else 4096, hard))
    held = [attack(port, KINDS[kind]) for _ in range(number)]
    print("all connections were tried", flush=True)
    dripped_at, turn = time.monotonic(), 0
    while not select.select([sys.stdin], [], [], AGAIN_S)[0]:
        turn = (turn + 1) % number
        if (old := held[turn]) is not None:
            old.close()
        held[turn] = attack(port, KINDS[kind])
        if kind == "dripping" and time.monotonic() - dripped_at > 10.0:
            dripped_at = time.monotonic()
            for connection in filter(None, held):
                with suppress(OSError):
                    connection.send(b"x")


if __name__ == "__main__":
    main()
