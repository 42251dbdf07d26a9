"""Cost of a verify round beside its forward pass: receive, forward, verify, schedule, send.

The real core, target, codec and ZeroMQ channel over loopback serve eight draft nodes that are only played: their
drafts were recorded beforehand with the embedded draft models, so acceptance is real and nothing competes with the
verify node. Time spent waiting is never counted. `overhead` is everything but the forward pass, as a share of a round.

One run records; the following ones play the very same rounds again. A part of a round is the median over those runs,
and what is reported is the median over rounds in which all clients took part. The first line of each setting is the
thread's own CPU time, so that a busy machine does not show in it; the second is the same by the clock.

It takes about 2 minutes on two cores; about 10 s with --quick.
"""

import asyncio
import statistics
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from experiments.benchmarks.nodes.played import Client, make_daemon
from experiments.benchmarks.nodes.recorded import Recording, clients
from experiments.harness import benchmark
from goodspeed.engine import checkpoints
from goodspeed.engine.engine import Checkpoint
from goodspeed.errors import ProtocolError
from goodspeed.wire.messages import Sampling, UpMessage
from goodspeed.wire.zmq.transport import DraftChannel, connect_draft
from verify_node.core.replies import Send

NUM_CLIENTS = 8
BUDGET = 24
PARTS = ("receive", "forward", "verify", "schedule", "send")
SETTINGS = {
    "T=1": Sampling(temperature=1.0),
    "T=1 top-k 20": Sampling(temperature=1.0, top_k=20),
    "T=1 top-p 0.9": Sampling(temperature=1.0, top_p=0.9),
    "T=1 top-k 20 top-p 0.9": Sampling(temperature=1.0, top_k=20, top_p=0.9),
    "T=0": Sampling(temperature=0.0),
}
QUICK = ("T=1", "T=1 top-k 20 top-p 0.9", "T=0")
ROUND_S = 0.05
"""Step of the core's clock from round to round, so that the rounds are the same on any machine."""

WANTED, GOAL = 0.15, 0.10


@dataclass
class Watch:
    """A stopwatch: seconds of this thread's CPU time, and of the clock, by part."""

    cpu_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PARTS, 0.0))
    wall_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PARTS, 0.0))

    @contextmanager
    def timing(self, part: str) -> Iterator[None]:
        wall, cpu = time.perf_counter(), time.thread_time()
        yield
        self.cpu_s[part] += time.thread_time() - cpu
        self.wall_s[part] += time.perf_counter() - wall


@dataclass(frozen=True)
class Played:
    """The times and counts of one round."""

    is_full: bool  # all clients took part, none with its prompt
    num_drafted: int
    num_accepted: int
    watch: Watch


async def send_all(line: DraftChannel, messages: list[UpMessage]) -> int:
    for message in messages:
        await line.send(message)
    return len(messages)


class Stage:
    """A verify node without its event loop, and its clients, connected by loopback sockets."""

    def __init__(self, checkpoint: Checkpoint, players: list[Client]) -> None:
        self.daemon = make_daemon(checkpoint, BUDGET, kv_pages=1024)
        self.core, self.target, self.channel = self.daemon.core, self.daemon.target, self.daemon.channel
        self.players = players
        self.lines = [connect_draft(self.channel.endpoint) for _ in players]
        self.players_by_peer: dict[bytes, int] = {}  # a line's name is given by the verify node, when Hello comes
        self.now = 0.0

    async def play(self, num_rounds: int) -> list[Played]:
        for number, (player, line) in enumerate(zip(self.players, self.lines, strict=True)):  # every run in this order
            for peer_id in await self._take(await send_all(line, player.greet(self.core.welcome)), Watch()):
                self.players_by_peer[peer_id] = number
            player.hear(await line.receive())  # Welcome
        return [await self._round() for _ in range(num_rounds)]

    async def _round(self) -> Played:
        """Runs a round whose drafts have arrived, sends the verdicts, and receives the next drafts."""
        watch = Watch()
        self.now += ROUND_S
        with watch.timing("schedule"):
            planned = self.core.plan(self.now)
        if planned is None:
            raise RuntimeError(f"round {self.core.rounds.num_rounds + 1} cannot start: {self._missing()}")
        with watch.timing("forward"):
            logits = self.target.forward(planned)
        with watch.timing("verify"):
            outcomes = self.target.verify(planned, logits)
        with watch.timing("schedule"):
            sends = self.core.finish(outcomes, ROUND_S, self.now)
        with watch.timing("send"):
            self._reply(sends)
        await self._take(await self._answers(sends), watch)
        return Played(
            is_full=len(planned.verified) == len(self.players) and not planned.prefilled,
            num_drafted=planned.num_drafted,
            num_accepted=sum(outcome.num_accepted for outcome in outcomes),
            watch=watch,
        )

    def _reply(self, sends: Iterable[Send]) -> None:
        for send in sends:
            self.channel.send(send.peer_id, send.message)

    async def _answers(self, sends: list[Send]) -> int:
        """Lets the clients answer, untimed; returns the number of their messages."""
        num_sent = 0
        for number in sorted(self.players_by_peer[send.peer_id] for send in sends):
            player, line = self.players[number], self.lines[number]
            num_sent += await send_all(line, player.send(player.hear(await line.receive())))
        return num_sent

    async def _take(self, num_messages: int, watch: Watch) -> set[bytes]:
        """Receives num_messages at the verify node; returns their senders' names."""
        peer_ids: set[bytes] = set()
        while num_messages > 0:
            await asyncio.sleep(0.002)  # for the sockets' own threads; waiting is not counted
            with watch.timing("receive"):
                received = self.channel.receive_ready()
                for one in received:
                    if isinstance(one.message, ProtocolError):
                        raise one.message
                    self._reply(self.core.receive(one.peer, one.message, self.now))
            peer_ids |= {one.peer for one in received}
            num_messages -= len(received)
        return peer_ids

    def _missing(self) -> str:
        """Returns the names of the clients whose drafts are missing."""
        sessions = self.core.sessions.values()
        num_awaited = sum(session.awaits_draft for session in sessions)
        num_finished = len(self.players) - sum(not session.finished for session in sessions)
        return f"of {len(self.players)} sessions {num_awaited} wait for a draft and {num_finished} are finished"

    def close(self) -> None:
        for line in self.lines:
            line.close()
        self.channel.close()


def staged(checkpoint: Checkpoint, players: list[Client], num_rounds: int) -> list[Played]:
    stage = Stage(checkpoint, players)
    try:
        return asyncio.run(stage.play(num_rounds))
    finally:
        stage.close()


# -- figures -----------------------------------------------------------------------------------------------------------


def summary(runs: list[list[Played]]) -> dict[str, Any]:
    """Returns, for runs of the same rounds, the median over full rounds of each round's median over the runs."""
    full = [again for again in zip(*runs, strict=True) if again[0].is_full]
    cpu, wall = ({part: middle(full, kind, part) for part in PARTS} for kind in ("cpu_s", "wall_s"))
    drafted = sum(again[0].num_drafted for again in full)
    return {
        "num_rounds": len(full),
        "num_drafted": drafted / len(full),
        "draft_acceptance_rate": sum(again[0].num_accepted for again in full) / drafted,
        "overhead": overhead(cpu),
        "wall_overhead": overhead(wall),
        "round_s": sum(cpu.values()),
        "parts_s": cpu,
        "wall_parts_s": wall,
    }


def middle(full: list[tuple[Played, ...]], kind: str, part: str) -> float:
    medians = [statistics.median(getattr(played.watch, kind)[part] for played in again) for again in full]
    return float(statistics.median(medians))


def overhead(parts: dict[str, float]) -> float:
    return 1 - parts["forward"] / sum(parts.values())


def measure(checkpoint: Checkpoint, recording: Recording, sampling: Sampling, num_rounds: int, num_runs: int) -> Any:
    def players() -> list[Client]:
        return clients(recording, sampling, NUM_CLIENTS, max_tokens=1000)

    staged(checkpoint, players(), num_rounds)  # records
    num_made = recording.num_made
    runs = [staged(checkpoint, players(), num_rounds) for _ in range(num_runs)]
    if recording.num_made != num_made:
        raise RuntimeError("a run that is played again asked for a draft that was not recorded")
    return summary(runs)


HEADER = f"{'':>24} {'round':>8}" + "".join(f"{part:>9}" for part in PARTS) + " overhead (ms)"


def show(name: str, result: dict[str, Any]) -> str:
    def line(title: str, total: float, parts: dict[str, float], end: str) -> str:
        cells = "".join(f"{parts[part] * 1e3:>9.3f}" for part in PARTS)
        return f"{title:>24} {total * 1e3:>8.2f}{cells} {end}"

    wall = result["wall_parts_s"]
    return "\n".join(
        [
            line(name, result["round_s"], result["parts_s"], f"{result['overhead']:8.1%}"),
            line("by the clock", sum(wall.values()), wall, f"{result['wall_overhead']:8.1%}"),
        ]
    )


def main() -> int:
    options = benchmark.parser("round", __doc__, "fewer settings, rounds and runs").parse_args()
    torch.set_num_threads(1)
    num_rounds, num_runs = (12, 2) if options.quick else (40, 7)  # the first seven prefill prompts
    checkpoint, recording = checkpoints.load("tiny-target"), Recording.empty()
    benchmark.say(options, HEADER)
    results = {}
    for name in QUICK if options.quick else SETTINGS:
        results[name] = measure(checkpoint, recording, SETTINGS[name], num_rounds, num_runs)
        benchmark.say(options, show(name, results[name]))
    first = results["T=1"]
    head = {"benchmark": "round", "num_clients": NUM_CLIENTS, "budget": BUDGET, "wanted": WANTED, "goal": GOAL}
    found = head | {"overhead": first["overhead"], "parts_s": first["parts_s"], "settings": results}
    benchmark.report(options, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
