"""Times the stalls of both daemons' event loops under plain load: `/health` every 20 ms, and the ten longest answers.

Real processes: a verify node and a draft node, both with HTTP, and users who ask for one streamed text after another.
A thread for each daemon asks for `/health` over one connection. Linux says what the daemon's main thread did while an
answer took long: it *ran* (a callback took long), *waited* for a CPU (the machine was busy), or was *blocked* (another
of its threads held Python's lock, or a page was fetched). What is not waiting is the daemon's own: `own_ms`.

It takes about 10 minutes, or as many as `--minutes` says; about 20 s with --quick.
"""

import asyncio
import http.client
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from experiments.benchmarks.nodes import http_load
from experiments.benchmarks.nodes.processes import START_S, free_port, http_nodes
from experiments.harness import benchmark
from goodspeed.embedded import prompts

EVERY_S = 0.02
WANTED_MS = 100.0
"""Wanted: no answer is later than this by what the daemon itself does."""

NUM_SHOWN = 10
NUM_TOKENS = 120


@dataclass(frozen=True)
class Answer:
    """One answer of `/health`, and what the daemon's main thread did meanwhile, in milliseconds."""

    at_s: float  # since the load began
    ms: float
    ran_ms: float
    waited_ms: float
    blocked_ms: float

    @property
    def own_ms(self) -> float:
        """The part that is not the machine's."""
        return self.ran_ms + self.blocked_ms


@dataclass
class Probe:
    """Asks one daemon for `/health` until it is told to end."""

    name: str
    address: http_load.Address
    pid: int
    began: float
    answers: list[Answer] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def begin(self) -> None:
        self._thread = threading.Thread(target=self._ask, name=self.name)
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _ask(self) -> None:
        with closing(http.client.HTTPConnection(self.address.host, self.address.port, timeout=START_S)) as connection:
            while not self._over.wait(EVERY_S):
                ran, waited = _scheduled_ms(self.pid)
                started = time.perf_counter()
                connection.request("GET", "/health")
                connection.getresponse().read()
                ms = 1e3 * (time.perf_counter() - started)
                ran_after, waited_after = _scheduled_ms(self.pid)
                ran, waited = ran_after - ran, waited_after - waited
                blocked = max(0.0, ms - ran - waited)
                self.answers.append(Answer(started - self.began, ms, ran, waited, blocked))


def _scheduled_ms(pid: int) -> tuple[float, float]:
    """Milliseconds that a process's main thread has run, and waited for a CPU, by Linux's account."""
    ran, waited, _ = Path(f"/proc/{pid}/task/{pid}/schedstat").read_text("ascii").split()
    return int(ran) / 1e6, int(waited) / 1e6


async def measure(minutes: float, num_users: int) -> dict[str, Any]:
    verify_port = free_port()
    draft = ["--name=ana", "--model=tiny-draft-s"]
    async with http_nodes([draft], f"--http=127.0.0.1:{verify_port}") as nodes:
        places = [http_load.Address("127.0.0.1", verify_port), http_load.Address.of(nodes.urls[0])]
        await _write_until(time.perf_counter() + 5.0, places[1], num_users)  # what is loaded at first use is loaded
        began = time.perf_counter()
        probes = [
            Probe(name, place, child.process.pid, began)
            for name, place, child in zip(("verify", "draft"), places, (nodes.verify, *nodes.drafts), strict=True)
        ]
        for probe in probes:
            probe.begin()
        try:
            num_texts = await _write_until(began + 60.0 * minutes, places[1], num_users)
        finally:
            for probe in probes:
                await asyncio.to_thread(probe.end)
    return {"minutes": minutes, "num_texts": num_texts, **{probe.name: found(probe.answers) for probe in probes}}


async def _write_until(end: float, address: http_load.Address, num_users: int) -> int:
    """Has each user ask for one text after another; returns how many were written. BadAnswer if one is incomplete."""
    numbers = count()

    def bodies() -> Iterator[dict[str, Any]]:
        texts = prompts.demo()
        for number in numbers:
            text = texts[number % len(texts)].prompt
            yield {"prompt": text, "max_tokens": NUM_TOKENS, "seed": number, "ignore_eos": True}

    asked = bodies()

    async def user() -> int:
        num_texts = 0
        while time.perf_counter() < end:
            (await http_load.send(address, next(asked), time.perf_counter())).answer(NUM_TOKENS)
            num_texts += 1
        return num_texts

    return sum(await asyncio.gather(*(user() for _ in range(num_users))))


def found(answers: list[Answer]) -> dict[str, Any]:
    """The figures of one daemon, with its longest answers, the longest first."""
    ms = np.array([answer.ms for answer in answers])
    longest = sorted(answers, key=lambda answer: -answer.ms)[:NUM_SHOWN]
    return {
        "num_answers": len(answers),
        "p50_ms": float(np.percentile(ms, 50)),
        "p99_ms": float(np.percentile(ms, 99)),
        "longest_ms": float(ms.max()),
        "longest_own_ms": max(answer.own_ms for answer in answers),
        "slowest": [{**asdict(answer), "own_ms": answer.own_ms} for answer in longest],
    }


def table(result: dict[str, Any]) -> str:
    lines = [f"{result['num_texts']} texts in {result['minutes']:g} minutes; wanted: own at most {WANTED_MS:g} ms"]
    for name in ("verify", "draft"):
        one = result[name]
        figures = f"p50 {one['p50_ms']:.1f} ms, p99 {one['p99_ms']:.1f}, longest {one['longest_ms']:.1f}"
        lines += ["", f"{name} node: {one['num_answers']} answers, {figures}, own {one['longest_own_ms']:.1f}"]
        lines += [f"{'at s':>8} {'ms':>8} {'ran':>8} {'blocked':>8} {'waited':>8}"]
        lines += [
            f"{slow['at_s']:8.1f} {slow['ms']:8.1f} {slow['ran_ms']:8.1f} {slow['blocked_ms']:8.1f} "
            f"{slow['waited_ms']:8.1f}"
            for slow in one["slowest"]
        ]
    return "\n".join(lines)


def main() -> int:
    parser = benchmark.parser("stalls", __doc__, "a few seconds: does it still run?")
    parser.add_argument("--minutes", type=float, default=10.0, help="of load (default: 10)")
    parser.add_argument("--users", type=int, default=4, help="texts at a time (default: 4)")
    options = parser.parse_args()
    result = asyncio.run(measure(0.05 if options.quick else options.minutes, options.users))
    benchmark.say(options, table(result))
    benchmark.report(options, {"benchmark": "stalls", **result})
    return 0


if __name__ == "__main__":
    sys.exit(main())
