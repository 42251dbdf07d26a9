"""Times the pause of texts whose verify node is killed, or stops: two replicas of a fleet, and draft nodes on both.

Eight draft nodes without a model, each with its own order of the two replicas, stream a text each over HTTP. First
nothing happens, which tells what the texts are and how long they pause anyway. Then one replica is killed (-9) in
mid-stream; it is started again, and when it is back the other one is drained in mid-stream. A pause is the longest time
between two pieces of a text, of the texts whose replica went. Every text has to be what it was without any of that; the
exit status is 1 if one differs.

The replicas are kept by `goodspeed-fleet` with Ray. It takes about 3 minutes on two cores; about a minute with --quick.
"""

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from experiments.benchmarks.nodes.http_load import Address, Answer, send_all
from experiments.benchmarks.nodes.processes import START_S, command, ignore
from experiments.harness import benchmark
from goodspeed.app.demo.processes import Processes, environment
from goodspeed.embedded import prompts

TARGET = "tiny-target"


class Replicas:
    """Two verify nodes that `goodspeed-fleet` keeps, with Ray."""

    def __init__(self, name: str) -> None:
        self._name = name
        told = json.loads(self._run("up", "--model", TARGET, "--replicas", "2", "--port", "0", "--json"))
        self._names, self.endpoints = list(told["replicas"]), list(told["endpoints"])

    def _run(self, word: str, *words: str) -> str:
        line = [sys.executable, "-m", "goodspeed.app.fleet", word, "--name", self._name, *words]
        return subprocess.run(line, check=True, stdout=subprocess.PIPE, text=True).stdout

    def _told(self, number: int) -> dict[str, Any]:
        replicas: list[dict[str, Any]] = json.loads(self._run("status", "--json"))["replicas"]
        return next(one for one in replicas if one["name"] == self._names[number])

    def kill(self, number: int) -> None:
        """kill -9; Ray starts it again."""
        os.kill(self._told(number)["pid"], signal.SIGKILL)

    def wait_until_back(self, number: int) -> None:
        while not ((told := self._told(number))["restarts"] and told["state"] == "ready"):
            time.sleep(0.5)

    def drain(self, number: int) -> None:
        """Has it send its texts to the other one, and end."""
        self._run("drain", self._names[number])

    def end(self) -> None:
        self._run("down")


def bodies(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Requests to the draft nodes, one each; every second text is sampled."""
    chosen = prompts.load()[: options.clients]
    return [
        {
            "prompt": one.prompt,
            "max_tokens": options.tokens,
            "temperature": 0.8 * (number % 2),
            "seed": number,
            "ignore_eos": True,
        }
        for number, one in enumerate(chosen)
    ]


async def stream_all(addresses: Sequence[Address], options: argparse.Namespace) -> list[Answer]:
    """Has each draft node stream its text. Raises BadAnswer if one is not complete."""
    return [one.answer(options.tokens) for one in await send_all(addresses, bodies(options))]


async def stream_beside(
    event: Callable[[int], None], replica: int, addresses: Sequence[Address], options: argparse.Namespace
) -> list[Answer]:
    """The same, and in mid-stream something happens to a replica."""
    streaming = asyncio.create_task(stream_all(addresses, options))
    await asyncio.sleep(options.into_s)
    await asyncio.to_thread(event, replica)
    return await streaming


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    pair = Replicas(f"failover-{os.getpid()}")
    try:
        async with Processes(environment()) as processes:
            addresses = []
            for number in range(options.clients):
                own, other = pair.endpoints[number % 2], pair.endpoints[1 - number % 2]
                words = ["--model=none", f"--tokenizer={TARGET}", f"--verify={own}", f"--verify={other}"]
                line = command("draft_node", *words, f"--name=draft-{number}", "--http=127.0.0.1:0", "--history=off")
                node = await processes.start(f"draft-{number}", line, ignore)
                addresses.append(Address.of(str((await node.expect("ready", START_S))["url"])))
                await node.expect("connected", START_S)
            return await play(pair, addresses, options)
    finally:
        pair.end()


async def play(pair: Replicas, addresses: Sequence[Address], options: argparse.Namespace) -> dict[str, Any]:
    """Nothing happens; one is killed, and comes back; the other is drained."""
    undisturbed = await stream_all(addresses, options)
    benchmark.note(f"undisturbed: {told(undisturbed)}")
    killed = await stream_beside(pair.kill, 0, addresses, options)
    of_killed = killed[::2]  # whose first verify node it is
    benchmark.note(f"one replica killed: {told(of_killed)}")
    await asyncio.to_thread(pair.wait_until_back, 0)
    drained = await stream_beside(pair.drain, 1, addresses, options)
    benchmark.note(f"the other drained: {told(drained)}")
    texts = [one.text for one in undisturbed]
    num_different = sum(one.text != text for after in (killed, drained) for one, text in zip(after, texts, strict=True))
    return {
        "clients": options.clients,
        "tokens": options.tokens,
        "pause_s": {"none": pauses(undisturbed), "killed": pauses(of_killed), "drained": pauses(drained)},
        "num_texts": 2 * len(texts),
        "num_different": num_different,
    }


def pauses(answers: Sequence[Answer]) -> dict[str, float]:
    """Returns the median and the 95th percentile of the texts' longest pauses, in seconds."""
    found = sorted(max(late - early for early, late in pairwise(one.pieces_s)) for one in answers)
    return {"median": statistics.median(found), "p95": found[round(0.95 * (len(found) - 1))]}


def told(answers: Sequence[Answer]) -> str:
    found = pauses(answers)
    return f"longest pause of a text {found['median']:.2f} s in the middle, {found['p95']:.2f} s at the 95th percentile"


def main() -> int:
    parser = benchmark.parser("failover", __doc__, "two draft nodes, short texts")
    parser.add_argument("--clients", type=int, default=8, help="draft nodes (default 8)")
    parser.add_argument("--tokens", type=int, default=500, help="of each text (default 500)")
    parser.set_defaults(into_s=2.0)  # from the first texts to the failure
    options = parser.parse_args()
    if options.quick:
        options.clients, options.tokens, options.into_s = 2, 100, 0.5
    found = asyncio.run(measure(options))
    benchmark.note(f"{found['num_different']} of {found['num_texts']} texts differ")
    benchmark.report(options, {"benchmark": "failover", **found})
    return 1 if found["num_different"] else 0


if __name__ == "__main__":
    sys.exit(main())
