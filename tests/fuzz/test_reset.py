"""Peers over which libzmq 4.3.5 takes the whole process down, unless its options keep it from that."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.alone

PROGRAM = """
import socket, struct, sys, time
from goodspeed.wire.zmq.opening_channels import bind_verify
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
while messages := list(channel.arriving()):
    num_taken += len(messages)
print(num_taken)
channel.close()
"""

TWO_OF_ONE_NAME = """
import time, zmq
from goodspeed.wire.zmq.opening_channels import bind_verify

channel = bind_verify("tcp://127.0.0.1:0")
context = zmq.Context()
peers = []
for word in (b"first", b"second"):
    peers.append(context.socket(zmq.DEALER))
    peers[-1].linger = 0
    peers[-1].routing_id = b"name"
    peers[-1].connect(channel.endpoint)
    peers[-1].send(word)
    time.sleep(0.3)
    list(channel.arriving())
for _ in range(20):
    peers[0].send(bytes(1000))
time.sleep(0.2)
peers[0].close()
time.sleep(1.5)  # three heartbeats' time
print(len(list(channel.arriving())))
channel.close()
context.destroy(linger=0)
"""


@pytest.mark.parametrize("kind", ["heartbeat", "PING"])
def test_a_reset_while_much_waits_ends_nothing_but_its_connection(kind: str) -> None:
    assert survivor(PROGRAM, kind) > 1500


def test_somebody_who_speaks_on_after_another_came_by_its_name() -> None:
    assert survivor(TWO_OF_ONE_NAME) == 20  # the newcomer is not heard


def survivor(*words: str) -> int:
    """Runs a program, which is the verify node's side too, to its end; returns how many messages it took."""
    command = [sys.executable, "-c", *words]
    run = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    return int(run.stdout)
