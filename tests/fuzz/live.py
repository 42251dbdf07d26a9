"""Honest draft nodes that write texts, a verify node as a process of its own, and an attacker in another.

Quiet and loud parts take turns: texts are written without hostile traffic, then while it goes on. What is looked at:
every honest text is the target's own; the verify node lives, its memory stays flat, and its counters tell what became
of each message. Gaps are between two verdicts of one honest session, as its user gets them.
"""

import asyncio
import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from draft_node.core.actions import Deliver, Finish
from draft_node.core.generation import Generation
from draft_node.process.daemon import DraftDaemon
from goodspeed.serving.running import KERNELS
from goodspeed.slo.objectives import Objectives
from goodspeed.wire import keys
from goodspeed.wire.channels import DraftChannel
from goodspeed.wire.codec import MAX_MESSAGE_BYTES, encode
from goodspeed.wire.messages import UpMessage
from tests import nodes
from tests.faults.conftest import make_keys
from tests.nodes import ROOT, VerifyNode
from tests.together.cluster.cluster import alone, draft_daemon, load, make_request, prompt_ids

NUM_CLIENTS = 2
NUM_TEXTS = 2  # of each client, at once
NUM_TOKENS = 40
WARM_UP = 0.5
"""Share of the messages after which memory has to stay flat: before, pages of the pool are used for the first time."""

MAX_GROWTH_MIB = 16
"""The most that memory may grow after the warm-up: by pages of the pool that are used for the first time, by what is
open, and by records that are bounded and fill by and by. A long run finds a leak that hides in it in a short one."""

KV_PAGES = 72  # a pool that is small, 27 MiB: resident memory grows with each page that is used for the first time
URGENT = Objectives(1.0, 0.1, "urgent")
PROMISES = ("--slo-tier", "urgent:ttft=1s,tpot=100ms")
"""A verify node with tiers promises them, whatever hostile peers ask for."""

FLAT = {name: os.environ.get(name, "1") for name in KERNELS}
"""How many compiled kernels are kept. Their growth is bounded but hides what is not: with 32 the last 10,000 messages
add 2 to 24 MiB, and memory is flat after 350,000. With 1 they add 0 to 7 (six runs), and the run takes a seventh
longer."""

DEADLINE_S = 120.0
LOOK_S = 0.25
QUIET_LOOKS = 3


@dataclass
class Gaps:
    """Seconds between verdicts, by part."""

    quiet: list[list[float]] = field(default_factory=list)
    loud: list[list[float]] = field(default_factory=list)

    def summary(self) -> dict[str, float]:
        """95th percentiles over all, and the median over pairs of parts of loud / quiet."""
        quiet, loud = (p95([gap for part in parts for gap in part]) for parts in (self.quiet, self.loud))
        pairs = [p95(after) / p95(before) for before, after in zip(self.quiet, self.loud, strict=True)]
        return {"quiet_p95_s": quiet, "loud_p95_s": loud, "median_ratio": statistics.median(pairs)}


@dataclass
class Honest:
    """Draft nodes in this process, and what became of their texts."""

    daemons: list[DraftDaemon]
    num_exact: int = 0
    wrong: list[str] = field(default_factory=list)

    @property
    def num_sent(self) -> int:
        return sum(daemon.channel.traffic.num_sent for daemon in self.daemons)

    async def write(self, gaps: list[float]) -> None:
        """A text for each place; they are the same ones in every part."""
        texts = [
            self._text(daemon, wanted(NUM_TEXTS * client + place), gaps)
            for client, daemon in enumerate(self.daemons)
            for place in range(NUM_TEXTS)
        ]
        await asyncio.wait_for(asyncio.gather(*texts), DEADLINE_S)

    async def _text(self, daemon: DraftDaemon, request: Generation, gaps: list[float]) -> None:
        tokens: tuple[int, ...] = ()
        end, before = None, None
        async for item in daemon.generate(request):
            if isinstance(item, Deliver):
                now = time.monotonic()
                if before is not None:
                    gaps.append(now - before)
                tokens, before = tokens + item.tokens, now
            else:
                end = item
        expected = alone(request.prompt, request.sampling, request.max_tokens)
        if isinstance(end, Finish) and tokens == expected:
            self.num_exact += 1
        else:
            self.wrong.append(f"{end}: {tokens} instead of {expected}")


def wanted(index: int) -> Generation:
    """Greedy and sampled texts; every third asks for a service level."""
    slo = URGENT if index % 3 == 0 else None
    return make_request(prompt_ids(index), NUM_TOKENS, temperature=float(index % 2), seed=index, slo=slo)


@dataclass
class Attacker:
    """The other process, and what it told last."""

    process: asyncio.subprocess.Process
    num_sent: int = 0
    counts: dict[str, Any] = field(default_factory=dict)

    def overhear(self, message: UpMessage) -> None:
        self._tell({"overheard": encode(message, MAX_MESSAGE_BYTES).hex()})

    async def attack(self, num_messages: int) -> None:
        """Returns when so many were sent."""
        self._tell({"attack": num_messages})
        while line := await self.process.stdout.readline():
            told = json.loads(line)
            self.num_sent = told.get("sent", self.num_sent)
            if "done" in told:
                self.counts = told["done"]
                self.num_sent = self.counts["num_sent"]
                return
        raise AssertionError("the attacker ended too early")

    def _tell(self, command: dict[str, object]) -> None:
        self.process.stdin.write(json.dumps(command).encode() + b"\n")


@dataclass
class Memory:
    """Resident memory of the verify node over the hostile messages sent."""

    pid: int
    samples: list[tuple[int, int]] = field(default_factory=list)  # (messages, bytes)

    def look(self, num_sent: int) -> None:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text("ascii").split()[1])
        self.samples.append((num_sent, pages * resource.getpagesize()))

    def summary(self) -> dict[str, object]:
        """Slope and growth after the warm-up; a few points of the way."""
        last = self.samples[-1][0]
        flat = [sample for sample in self.samples if sample[0] >= WARM_UP * last]
        step = max(1, len(self.samples) // 20)
        sent, sizes = zip(*flat, strict=True)
        return {
            "bytes_per_message": round(statistics.linear_regression(sent, sizes).slope, 2) if len({*sent}) > 1 else 0.0,
            "growth_mib": round((flat[-1][1] - flat[0][1]) / 2**20, 2),
            "mib": [(messages, round(size / 2**20, 1)) for messages, size in self.samples[::step]],
        }


def p95(values: list[float]) -> float:
    return statistics.quantiles(values, n=20)[-1]


# -- the run -----------------------------------------------------------------------------------------------------------


@dataclass
class Site:
    """The addresses where everybody finds each other; with keys in a folder, or without."""

    words: list[str]  # of the verify node
    honest: list[dict[str, str]]  # options of each honest draft node
    hostile: list[str]  # words of the attacker


@contextmanager
def _site(num_keys: int) -> Iterator[Site]:
    if not num_keys:
        yield Site([], [{"name": f"honest-{n}"} for n in range(NUM_CLIENTS)], [])
        return
    honest, hostile = [f"honest-{n}" for n in range(NUM_CLIENTS)], [f"hostile-{n}" for n in range(num_keys)]
    with TemporaryDirectory() as name:
        folder = make_keys(Path(name), (*honest, *hostile))
        pairs = [keys.read_draft_pair(str(folder / f"{name}.key")) for name in hostile]
        (folder / "hostile.json").write_text(json.dumps([(one.name, one.public_key, one.secret_key) for one in pairs]))
        verify = {"verify_key": str(folder / "verify.pub")}
        public_key = keys.read_verify_key(verify["verify_key"]).public_key
        words = ["--key", str(folder / "verify.key"), "--enrolled", str(folder / "enrolled")]
        options = [{"name": name, "key": str(folder / f"{name}.key"), **verify} for name in honest]
        yield Site(words, options, [str(folder / "hostile.json"), public_key])


def run(
    num_messages: int,
    *,
    parts: int,
    seed: int = 0,
    num_keys: int = 0,
    progress: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Sends so many hostile messages in so many parts; with `num_keys` each hostile key is enrolled."""
    options = ("--log-level", "error", *PROMISES)
    with (
        _site(num_keys) as site,
        patch.dict(nodes.ENVIRONMENT, FLAT),
        patch.object(nodes, "Fork", nodes.run),  # which has torch already, and what torch read when it was loaded
        VerifyNode(*options, *site.words, measures=True, kv_pages=KV_PAGES) as verify,
    ):
        try:
            return asyncio.run(_run(verify, site, num_messages, parts, seed, progress))
        finally:
            assert verify.is_running, f"exit status {verify.process.poll()} of {verify}"


async def _run(
    verify: VerifyNode, site: Site, num_messages: int, parts: int, seed: int, progress: Callable[[str], None]
) -> dict[str, Any]:
    gaps, memory, started = Gaps(), Memory(verify.process.pid), time.monotonic()
    async with _attacker(verify.endpoint, seed, site) as attacker, _honest(verify.endpoint, site, attacker) as honest:
        await honest.write([])  # everything is loaded, and there is something to overhear
        for part in range(parts):
            quiet: list[float] = []
            await honest.write(quiet)
            gaps.quiet.append(quiet)
            share = num_messages * (part + 1) // parts - num_messages * part // parts
            gaps.loud.append(await _loud(verify, honest, attacker, share, memory))
            state = f"{memory.samples[-1][1] >> 20} MiB, {len(honest.wrong)} texts wrong"
            progress(f"{attacker.num_sent} messages, {state}, {time.monotonic() - started:.0f} s")
        metrics = await _settled(verify)
        memory.look(attacker.num_sent)
        return _report(honest, attacker, metrics, gaps, memory, time.monotonic() - started)


async def _loud(
    verify: VerifyNode, honest: Honest, attacker: Attacker, num_messages: int, memory: Memory
) -> list[float]:
    """Texts are written as long as the attack goes on, and memory is looked at."""
    gaps: list[float] = []
    attacking = asyncio.create_task(attacker.attack(num_messages))

    async def write_on() -> None:
        await honest.write(gaps)
        while not attacking.done():
            await honest.write(gaps)

    writing = asyncio.create_task(write_on())
    while not writing.done():
        assert verify.is_running
        memory.look(attacker.num_sent)
        await asyncio.wait([writing], timeout=LOOK_S)
    await writing
    await attacking
    await _settled(verify)
    return gaps


async def _settled(verify: VerifyNode) -> dict[str, float]:
    """The counters, once nothing but the honest heartbeats has come at several looks in a row."""
    before, num_quiet = -1e9, 0
    async with asyncio.timeout(DEADLINE_S):
        while True:
            metrics = await asyncio.to_thread(verify.metrics)
            num_quiet = num_quiet + 1 if metrics["messages_received_total"] - before < 20 else 0
            if num_quiet == QUIET_LOOKS:
                return metrics
            before = metrics["messages_received_total"]
            await asyncio.sleep(LOOK_S)


def _report(
    honest: Honest, attacker: Attacker, metrics: dict[str, float], gaps: Gaps, memory: Memory, seconds: float
) -> dict[str, Any]:
    prefix = 'refusals_total{reason="'
    refusals = {name.removeprefix(prefix).rstrip('"}'): int(value) for name, value in metrics.items()
                if name.startswith(prefix) and value}  # fmt: skip
    received = int(metrics["messages_received_total"]) - honest.num_sent
    ignored = int(metrics.get("messages_ignored_total", 0))
    num_refused = sum(refusals.values()) - refusals.get("barred", 0)  # that is told beside the last one's reason
    return {
        **attacker.counts,
        "seconds": round(seconds, 1),
        "num_received": received,
        "num_refused": num_refused,
        "num_ignored": ignored,  # of those that are barred
        "num_taken": received - num_refused - ignored,  # with what needs no answer: heartbeats, say
        "num_lost": attacker.num_sent - received,  # on connections that were cut, before anybody read them
        "num_cut": int(metrics.get("connections_cut_total", 0)),
        "refusals": refusals,
        "memory": memory.summary(),
        "honest": {"num_exact": honest.num_exact, "wrong": honest.wrong[:5], "num_wrong": len(honest.wrong)},
        "gaps": {name: round(value, 4) for name, value in gaps.summary().items()},
    }


@asynccontextmanager
async def _attacker(endpoint: str, seed: int, site: Site) -> Any:
    words = ["-m", "tests.fuzz.attack", endpoint, load("tiny-target").tokenizer_fingerprint, str(seed), *site.hostile]
    options: Any = dict.fromkeys(("stdin", "stdout"), asyncio.subprocess.PIPE) | {"cwd": ROOT, "limit": 1 << 20}
    process = await asyncio.create_subprocess_exec(sys.executable, *words, **options)
    try:
        yield Attacker(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def _honest(endpoint: str, site: Site, attacker: Attacker) -> Any:
    daemons = []
    for options in site.honest:
        daemons.append(draft_daemon(model="tiny-draft-s", verify=(endpoint,), **options))
        _tap(daemons[-1].channel, attacker.overhear)
    serving = [asyncio.create_task(daemon.serve()) for daemon in daemons]
    try:
        yield Honest(daemons)
        assert not any(task.done() for task in serving)
    finally:
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


def _tap(channel: DraftChannel, hear: Callable[[UpMessage], None]) -> None:
    """Tells what is sent on a channel."""
    send = channel.send

    async def tapped(message: UpMessage) -> None:
        hear(message)
        await send(message)

    channel.send = tapped  # type: ignore[method-assign]
