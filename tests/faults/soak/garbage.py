"""Malformed bytes: raw ones at every open port, and messages of nonsense under a key that is enrolled.

Blocks.
"""

import random
import socket
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import zmq

from goodspeed.wire import keys
from goodspeed.wire.handshake import VERSION, Heartbeat, Hello
from goodspeed.wire.messages import Ack, Close
from goodspeed.wire.zmq.authentication import ClientKeys, client_options
from tests.fuzz.damage import damaged

CONNECT_TIMEOUT_S = 2.0
MAX_BYTES = 600
GREETING = (
    b"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x00CURVE" + bytes(15) + bytes(32)
)  # of ZMTP 3, and then nonsense
MESSAGES = [
    msgspec.msgpack.encode(message)
    for message in (
        Hello(VERSION, "stranger", b"bootboot", "t"),
        Heartbeat(b"bootboot"),
        Ack(bytes(16), 1, 3),
        Close(bytes(16), 1),
    )
]


def throw(targets: list[str], folder: Path, name: str, num_messages: int, seed: float) -> None:
    """targets: the verify node's address, and URLs; name: whose key is used, of those in the folder."""
    rng = random.Random(seed)
    for target in targets:
        for opening in (
            b"",
            GREETING,
            b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 40\r\n\r\n",
        ):
            _throw_raw(target, opening + rng.randbytes(rng.randrange(1, MAX_BYTES)))
    _throw_messages(targets[0], folder, name, [damaged(rng.choice(MESSAGES), rng) for _ in range(num_messages)])


def _throw_raw(target: str, data: bytes) -> None:
    """A port that is dead now is no concern of ours."""
    parts = urlsplit(target)
    with suppress(OSError), socket.create_connection((parts.hostname, parts.port), timeout=CONNECT_TIMEOUT_S) as line:
        line.sendall(data)
        line.settimeout(0.05)
        line.recv(1024)


def _throw_messages(endpoint: str, folder: Path, name: str, messages: list[bytes]) -> None:
    pair = keys.read_draft_pair(str(folder / f"{name}.key"))
    verify_key = keys.read_verify_key(str(folder / "verify.pub")).public_key
    with zmq.Context() as context, context.socket(zmq.DEALER) as line:
        for option, value in client_options(ClientKeys(pair, verify_key)).items():
            line.setsockopt(option, value)
        line.setsockopt(zmq.LINGER, int(CONNECT_TIMEOUT_S * 1000))
        line.setsockopt(zmq.SNDTIMEO, int(CONNECT_TIMEOUT_S * 1000))
        line.connect(endpoint)
        with suppress(zmq.Again):
            for message in messages:
                line.send(message)
