"""Rounds of the real verify daemon, on its own event loop, with played clients on a thread of their own.

Gives what the parts of each round took by the daemon's clock. Used by `round.py`.
"""

from __future__ import annotations

import asyncio
import io
import json
import statistics
import threading
import time
from contextlib import suppress
from typing import TextIO, cast

from experiments.benchmarks.nodes.recorded import Client
from goodspeed.engine.checkpoints import Checkpoint
from goodspeed.serving.events import EventLog
from goodspeed.wire.messages import UpMessage
from goodspeed.wire.zmq.transport import DraftChannel, bind_verify, connect_draft
from verify_node.assembly import build, make_runner, make_welcome
from verify_node.config import VerifyConfig
from verify_node.costs import make_cost
from verify_node.daemon import VerifyDaemon

BUDGET = 24
HEARTBEAT_S = 60.0  # the played clients send none, and may be silent while one of them makes a draft anew
PARTS = ("receive", "forward", "verify", "schedule", "send")


def make_daemon(checkpoint: Checkpoint, events: EventLog) -> VerifyDaemon:
    """Creates a verify node on a free port with the paper's rounds, which always spend the budget."""
    config = VerifyConfig(model=checkpoint.name, budget=BUDGET, preset="paper", kv_pages=1024, heartbeat_s=HEARTBEAT_S)
    welcome = make_welcome(config, checkpoint)
    channel = bind_verify("tcp://127.0.0.1:*", max_message_bytes=welcome.max_message_bytes)
    return build(config, make_runner(config, checkpoint), channel, welcome, events, make_cost(None))


async def send_all(line: DraftChannel, messages: list[UpMessage]) -> int:
    for message in messages:
        await line.send(message)
    return len(messages)


class Rounds(io.TextIOBase):
    """The stream of the daemon's events: keeps the rounds with all clients, and their times."""

    def __init__(self, num_clients: int, num_rounds: int) -> None:
        self.took_s: list[dict[str, float]] = []
        self.enough = asyncio.Event()
        self._num_clients, self._num_rounds = num_clients, num_rounds
        self._before = (0.0, dict.fromkeys(PARTS, 0.0))

    def write(self, text: str) -> int:
        if text == "\n":  # `print` writes the end of a line by itself
            return 1
        event = json.loads(text)
        now, wall_s = time.perf_counter(), event["wall_s"]
        if len(event["sessions"]) == self._num_clients:
            parts = {part: wall_s[part] - self._before[1][part] for part in PARTS}
            busy_s = now - self._before[0] - parts.pop("receive")  # there it is the wait for the clients
            self.took_s.append({**parts, "other": busy_s - sum(parts.values())})
        if len(self.took_s) == self._num_rounds:
            self.enough.set()
        self._before = time.perf_counter(), wall_s
        return len(text)

    def medians(self) -> dict[str, float]:
        """Returns median seconds of the daemon's parts of a round, and of `other`, the rest."""
        return {part: statistics.median(took[part] for took in self.took_s) for part in self.took_s[0]}


async def daemon_rounds(checkpoint: Checkpoint, players: list[Client], num_rounds: int) -> Rounds:
    """Runs rounds of the real daemon, with the clients on a thread of their own."""
    rounds = Rounds(len(players), num_rounds)
    daemon = make_daemon(checkpoint, EventLog(enabled=True, stream=cast(TextIO, rounds)))
    serving = asyncio.create_task(daemon.serve())
    over = threading.Event()
    playing = asyncio.create_task(asyncio.to_thread(asyncio.run, answer_all(players, daemon.channel.endpoint, over)))
    await asyncio.wait([serving, playing, asyncio.ensure_future(rounds.enough.wait())], return_when="FIRST_COMPLETED")
    over.set()
    await playing
    serving.cancel()
    with suppress(asyncio.CancelledError):
        await serving
    return rounds


async def answer_all(players: list[Client], endpoint: str, over: threading.Event) -> None:
    """Answers for all clients until `over`; one client's error ends all, since the daemon waits for every draft."""
    tasks = [asyncio.create_task(answer(player, endpoint)) for player in players]
    while not over.is_set() and not any(task.done() for task in tasks):
        await asyncio.sleep(0.05)
    failed = [task for task in tasks if task.done()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for task in failed:
        task.result()


async def answer(player: Client, endpoint: str) -> None:
    """Answers verdicts for ever. RuntimeError when the client's text ends, since then a round would lack a client."""
    line = connect_draft(endpoint)
    try:
        await send_all(line, player.greet())
        while True:
            await send_all(line, player.hear(await line.receive()))
            if player.session.done:
                raise RuntimeError(f"the text of client {player.number} is finished; ask for fewer rounds")
    finally:
        line.close()
