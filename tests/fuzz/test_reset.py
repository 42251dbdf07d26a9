"""A peer that sends more than anybody reads, and is then reset: ZeroMQ must not take the whole process down with it."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import socket, struct, sys, time
from goodspeed.transport import bind_verify
from tests.fuzz.attack import GREETING, READY

PING, MESSAGE = b"\\x04\\x07\\x04PING\\x00\\x00", b"\\x00\\x01x"
channel = bind_verify("tcp://127.0.0.1:0")
peer = socket.create_connection(("127.0.0.1", int(channel.endpoint.rpartition(":")[2])))
for words in (GREETING, READY, MESSAGE * 1500):
    peer.sendall(words)
    peer.recv(1000)  # the other side's words: it has read these
for _ in range(300):
    peer.sendall(MESSAGE * 3 + (PING if sys.argv[1] == "PING" else b""))
time.sleep(0.2)
peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
peer.close()  # a reset
time.sleep(1.0)  # two heartbeats' time
num_taken = 0
while messages := channel.receive_ready():
    num_taken += len(messages)
print(num_taken)
channel.close()
"""


@pytest.mark.parametrize("kind", ["heartbeat", "PING"])
def test_a_reset_while_much_waits_ends_nothing_but_its_connection(kind: str) -> None:
    words = [sys.executable, "-c", PROGRAM, kind]
    run = subprocess.run(words, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) > 1500
