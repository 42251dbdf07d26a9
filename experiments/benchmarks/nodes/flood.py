"""A hostile draft node for `disturbed.py`: sends messages that are all refused, as many a second as it is told.

It is let in like any other, under a name of its own, and then sends drafts, acknowledgements and sessions that the
verify node has to look at before it can refuse them. When its connection is cut, for it is barred by and by, it makes
another and says Hello again. Each line of its standard input is a rate; 0 is silence. To each it answers with an event:
what it sent at the rate before, how often it was cut, and how many refusals came back, by code (of its offences only
the first are answered). Run as a process of its own: `python -m experiments.benchmarks.nodes.flood ENDPOINT NAME`.
"""

import asyncio
import json
import os
import secrets
import sys
import time
from collections import Counter
from contextlib import suppress
from itertools import cycle

from goodspeed.errors import ProtocolError, TransportError
from goodspeed.wire.handshake import VERSION, Hello
from goodspeed.wire.messages import Ack, Draft, OpenSession, Refusal, Sampling, UpMessage
from goodspeed.wire.zmq.transport import DraftChannel, connect_draft

TURN_S = 0.01
"""Time between two batches of sends at high rates."""


class Flood:
    """One connection; `rate` may be changed at any moment."""

    def __init__(self, channel: DraftChannel, hello: Hello) -> None:
        self.rate = 0.0
        self._counts: Counter[str] = Counter()
        self._refusals: Counter[str] = Counter()
        self._channel = channel
        self._hello = hello
        self._is_stranger = True  # to the verify node, which has not been greeted, or forgets who is silent
        self._messages = cycle(refused_messages())

    async def send(self) -> None:
        """Sends messages at the present rate, for ever."""
        last, due = time.monotonic(), 0.0
        while True:
            await asyncio.sleep(TURN_S)
            if self._channel.broke():  # ZeroMQ makes another connection, of which the verify node knows nothing
                self._counts["cut"] += 1
                self._is_stranger = True
            if not self.rate:
                self._is_stranger = True  # by and by
            elif self._is_stranger:
                await self._greet()
            now = time.monotonic()
            due += (now - last) * self.rate
            last = now
            for _ in range(int(due)):
                await self._send(next(self._messages))
            due -= int(due)

    async def _send(self, message: UpMessage) -> None:
        try:
            await self._channel.send(message)
            self._counts["sent"] += 1
        except TransportError:  # the verify node takes no more of it: connected anew, as an attacker would
            self._counts["undelivered"] += 1
            await self._channel.reconnect()
            self._is_stranger = True

    async def _greet(self) -> None:
        with suppress(TransportError):  # the next message will not get through either
            await self._channel.send(self._hello)
            self._is_stranger = False

    async def hear(self) -> None:
        """Receives answers and counts the refusals, for ever."""
        while True:
            try:
                message = await self._channel.receive()
            except ProtocolError:
                continue
            if isinstance(message, Refusal):
                self._refusals[message.code] += 1
                self._is_stranger |= message.code == "hello_first"

    def take(self) -> dict[str, object]:
        """Returns the counts since the last call."""
        counts, refusals = dict(self._counts), dict(self._refusals)
        self._counts.clear()
        self._refusals.clear()
        return counts | {"refusals": refusals}


def refused_messages() -> list[UpMessage]:
    """Returns messages about sessions that are not open, and one that opens an impossible session."""
    session_id = secrets.token_bytes(16)
    return [
        Draft(session_id, 1, 3, (1, 2, 3)),
        Ack(session_id, 1, 3),
        OpenSession(session_id, 1, (), (), Sampling(), max_tokens=9),
        OpenSession(session_id, 1, ((1 << 31) - 1,) * 500, (), Sampling(), max_tokens=9),
    ]


async def work(endpoint: str, name: str) -> None:
    """Works until standard input ends, at the lowest priority: an attacker has a machine of its own."""
    os.nice(19)
    boot_id, tokenizer = secrets.token_bytes(8), sys.stdin.readline().strip()
    channel = connect_draft(endpoint, send_timeout_s=0.5)
    flood = Flood(channel, Hello(VERSION, name, boot_id, tokenizer))
    tasks = [asyncio.create_task(flood.send()), asyncio.create_task(flood.hear())]
    print(json.dumps({"event": "ready"}), flush=True)
    try:
        while line := await asyncio.to_thread(sys.stdin.readline):
            counts = flood.take()
            flood.rate = float(line)
            print(json.dumps({"event": "counts", **counts}), flush=True)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        channel.close()


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:]))
