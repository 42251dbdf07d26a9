"""The attacker: a process of its own that floods a verify node with the messages of `hostile.py`.

    python -m tests.fuzz.attack ENDPOINT TOKENIZER SEED [KEYS VERIFY_KEY]

It is told on standard input what to do, a line of JSON each: `{"overheard": HEX}` are honest bytes to say again, and
`{"attack": N}` sends N messages. It tells on standard output how far it is, and then `{"done": ...}` with its counts
since it started. Its few sockets become somebody else every now and then, and whenever nobody reads them any more; some
never read what they are answered. With KEYS, a file of enrolled key pairs, each newcomer has one of these.
"""

import json
import os
import queue
import socket
import sys
import threading
from collections import Counter
from pathlib import Path
from random import Random

import zmq

from tests.fuzz.hostile import Hostile, Me

NUM_SOCKETS = 6
NUM_RAW = 12  # connections that do not even speak ZMTP, open at once
RAW_EVERY = 400  # messages for each of them
BURST = 25

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
READY = b"\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"
ZMTP_1 = b"\x01\x00" + b"\x05\x00late"
"""A connection of ZMTP 1.0, without a greeting: an empty name, then one message. Any first byte but 0xff begins one."""


class Line:
    """One connection under one name, for a while."""

    def __init__(self, attack: "Attack") -> None:
        random = attack.hostile.random
        self.me: Me = attack.hostile.new()
        self.left = random.choice((20, 200, 2000))
        self.is_deaf = random.random() < 0.1
        self.socket = attack.context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 2000)
        self.socket.setsockopt(zmq.SNDTIMEO, 50)  # cut, or the verify node does not keep up
        self.socket.setsockopt(zmq.RECONNECT_IVL, -1)  # whoever is cut comes back as somebody else
        if attack.keys:
            self.me.name, public, secret = random.choice(attack.keys)
            self.socket.curve_serverkey = attack.verify_key.encode()
            self.socket.curve_publickey, self.socket.curve_secretkey = public.encode(), secret.encode()
        elif random.random() < 0.8:
            self.socket.setsockopt(zmq.ROUTING_ID, attack.hostile.identity())
        self.socket.connect(attack.endpoint)

    def hear(self) -> None:
        while self.socket.poll(0):
            self.me.hear(self.socket.recv())


class Attack:
    """All connections, and what was sent on them."""

    def __init__(self, endpoint: str, tokenizer: str, seed: int, keys: str | None, verify_key: str) -> None:
        self.endpoint = endpoint
        self.keys: list[tuple[str, str, str]] = json.loads(Path(keys).read_text()) if keys else []
        self.verify_key = verify_key
        self.hostile = Hostile(seed, tokenizer=tokenizer, with_keys=bool(keys))
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.kinds: Counter[str] = Counter()
        self.answers: Counter[str] = Counter()
        self.num_lines = 0
        self.num_raw = 0
        self._lines = [Line(self) for _ in range(NUM_SOCKETS)]
        self._raw: list[socket.socket] = []

    @property
    def num_sent(self) -> int:
        return sum(self.kinds.values())

    def send(self, num_messages: int) -> None:
        """So many, in bursts, now by this connection and now by that."""
        end = self.num_sent + num_messages
        while self.num_sent < end:
            place = self.hostile.random.randrange(len(self._lines))
            line = self._lines[place]
            self._burst(line, min(BURST, end - self.num_sent))
            if line.left <= 0:
                self._end(line)
                self._lines[place] = Line(self)
            if self.num_sent // RAW_EVERY > self.num_raw:
                self._say_no_zmtp()

    def counts(self) -> dict[str, object]:
        return {
            "num_sent": self.num_sent,
            "kinds": dict(self.kinds),
            "answers": dict(self.answers + sum((line.me.answers for line in self._lines), Counter())),
            "num_connections": self.num_lines + len(self._lines),
            "num_raw": self.num_raw,
        }

    def close(self) -> None:
        for raw in self._raw:
            raw.close()
        for line in self._lines:
            line.socket.close(linger=0)
        self.context.term()

    def _burst(self, line: Line, most: int) -> None:
        for _ in range(min(most, line.left)):
            kind, frames = self.hostile.next(line.me)
            try:
                line.socket.send_multipart(frames)
            except zmq.Again:  # nobody reads it any more
                line.left = 0
                return
            self.kinds[kind] += 1
            line.left -= 1
        if not line.is_deaf:
            line.hear()

    def _end(self, line: Line) -> None:
        line.hear()
        self.num_lines += 1
        self.answers += line.me.answers
        line.socket.close()

    def _say_no_zmtp(self) -> None:
        """A raw connection with something else on it; stays open until others need its place."""
        random: Random = self.hostile.random
        self.num_raw += 1
        words = (
            b"\xff" + random.randbytes(199),  # without 0xff: ZMTP 1.0, and a few messages that nobody counts
            ZMTP_1,
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            GREETING[: random.randrange(64)],
            GREETING + READY + b"\x02" + random.choice((b"\xff" * 8, b"\x7f" + b"\xff" * 7, b"\0\0\1" + bytes(5))),
            GREETING + b"\x06" + (1 << 40).to_bytes(8, "big") + b"\x05READY",
            GREETING + READY + b"\x01\x00" * 500,  # more and more frames of one message
            GREETING.replace(b"NULL", b"PLAIN")[:64] + b"\x04\x10\x05HELLO" + random.randbytes(10),
            GREETING.replace(b"NULL\0", b"CURVE")[:64] + b"\x04\xc8\x05HELLO" + random.randbytes(194),
        )
        try:
            host, _, port = self.endpoint.removeprefix("tcp://").rpartition(":")
            raw = socket.create_connection((host, int(port)), timeout=2)
            self._raw.append(raw)
            raw.sendall(word := random.choice(words))
            self.kinds["ZMTP 1.0"] += word is ZMTP_1
        except OSError:
            pass  # hung up on: that is fine
        if len(self._raw) > NUM_RAW:
            self._raw.pop(random.randrange(NUM_RAW)).close()


def main() -> None:
    os.nice(19)  # an attacker brings a machine of its own: here it gets the time that nobody else wants
    endpoint, tokenizer, seed, *keys = sys.argv[1:]
    attack = Attack(endpoint, tokenizer, int(seed), *(keys or (None, "")))
    commands: queue.Queue[str] = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            commands.put(line)
        commands.put("")

    threading.Thread(target=read, daemon=True).start()
    try:
        _obey(attack, commands)
    finally:
        attack.close()


def _obey(attack: Attack, commands: "queue.Queue[str]") -> None:
    left = told = 0
    while True:
        try:
            line = commands.get(block=not left)
        except queue.Empty:
            left -= (now := min(left, 500))
            attack.send(now)
            if attack.num_sent - told >= 5000:
                told = attack.num_sent
                print(json.dumps({"sent": told}), flush=True)
            if not left:
                print(json.dumps({"done": attack.counts()}), flush=True)
            continue
        if not line:
            return
        command = json.loads(line)
        left += command.get("attack", 0)
        if "overheard" in command:
            attack.hostile.overhear(bytes.fromhex(command["overheard"]))


if __name__ == "__main__":
    main()
