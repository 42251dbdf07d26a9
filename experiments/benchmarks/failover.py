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
import threading
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

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


@dataclass
class Stream:
    """One text that a draft node streams, read by a thread."""

    url: str
    body: dict[str, Any]
    text: str = ""
    pieces_at: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        request = urllib.request.Request(f"{self.url}/v1/completions", json.dumps(self.body).encode())
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=START_S) as answer:
            for line in answer:
                if line.startswith(b"data: {"):
                    self._take(json.loads(line[6:]))

    def _take(self, piece: dict[str, Any]) -> None:
        self.pieces_at.append(time.monotonic())
        self.text += piece["choices"][0]["text"] if piece.get("choices") else ""

    @property
    def pause_s(self) -> float:
        """The longest time between two pieces."""
        return max(later - earlier for earlier, later in zip(self.pieces_at, self.pieces_at[1:], strict=False))

    def finish(self) -> "Stream":
        self._thread.join()
        return self


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
            "stream": True,
        }
        for number, one in enumerate(chosen)
    ]


def stream_all(urls: Sequence[str], options: argparse.Namespace) -> list[Stream]:
    return [Stream(url, body) for url, body in zip(urls, bodies(options), strict=True)]


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    pair = Replicas(f"failover-{os.getpid()}")
    try:
        async with Processes(environment()) as processes:
            urls = []
            for number in range(options.clients):
                own, other = pair.endpoints[number % 2], pair.endpoints[1 - number % 2]
                words = ["--model=none", f"--tokenizer={TARGET}", f"--verify={own}", f"--verify={other}"]
                line = command("draft_node", *words, f"--name=draft-{number}", "--http=127.0.0.1:0", "--history=off")
                node = await processes.start(f"draft-{number}", line, ignore)
                urls.append(str((await node.expect("ready", START_S))["url"]))
            return await asyncio.to_thread(play, pair, urls, options)
    finally:
        pair.end()


def play(pair: Replicas, urls: Sequence[str], options: argparse.Namespace) -> dict[str, Any]:
    """Nothing happens; one is killed, and comes back; the other is drained."""
    undisturbed = [one.finish() for one in stream_all(urls, options)]
    benchmark.note(f"undisturbed: {told(undisturbed)}")
    killed = stream_all(urls, options)
    time.sleep(options.into_s)
    pair.kill(0)
    for one in killed:
        one.finish()
    of_killed = killed[::2]  # whose first verify node it is
    benchmark.note(f"one replica killed: {told(of_killed)}")
    pair.wait_until_back(0)
    drained = stream_all(urls, options)
    time.sleep(options.into_s)
    pair.drain(1)
    for one in drained:
        one.finish()
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


def pauses(streams: Sequence[Stream]) -> dict[str, float]:
    """Returns the median and the 95th percentile of the texts' longest pauses, in seconds."""
    found = sorted(one.pause_s for one in streams)
    return {"median": statistics.median(found), "p95": found[round(0.95 * (len(found) - 1))]}


def told(streams: Sequence[Stream]) -> str:
    found = pauses(streams)
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
