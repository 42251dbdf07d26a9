"""Loss of honest clients while another is slow or hostile: the p95 of their gaps between verdicts, with and without.

Real processes: a verify node with continuous rounds, honest draft nodes that write one text after another, and one that
disturbs. A gap is the time between two verdicts of one session, by its own draft node's clock (`at` of its events).

*slow*: another draft node, behind a proxy that makes the way there and back so long that its rounds take ten times as
long as at full speed (that is measured first). It costs nobody CPU to be slow. *flood*: a process that sends so many
messages a second which are all refused (`flood.py`). It runs at the lowest priority, as an attacker would have
a machine of its own; where cores are few take fewer honest clients (`--honest`), or it has no time left to send.

Calm and disturbed phases alternate, and in every second pair their order is turned round. For each pair the ratio of
the p95s; the median of the pairs is what counts.

It takes about 13 minutes on two cores; about 25 s with --quick.
"""

import asyncio
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from experiments.benchmarks.nodes.processes import START_S, command, ignore
from experiments.benchmarks.nodes.proxy import Proxy
from experiments.harness import benchmark
from goodspeed.app.demo.processes import Child, Event, Processes, environment
from goodspeed.embedded.prompts import load
from goodspeed.engine import checkpoints
from goodspeed.serving import prompts
from goodspeed.serving.prompts import Prompt

SLOWER = 10.0
WANTED = 1.10
"""Wanted: the highest ratio of a disturbed phase's p95 to a calm phase's."""

NUM_TEXTS = 5000  # more than anybody writes
MAX_TOKENS = 150


@dataclass(frozen=True)
class Plan:
    num_honest: int
    num_pairs: int
    phase_s: float
    settle_s: float  # of each phase, before its gaps count
    rates: tuple[int, ...]  # messages a second


FULL = Plan(4, 5, 20.0, 2.0, (200, 1000))
QUICK = Plan(1, 1, 1.2, 0.2, (200,))


@dataclass
class Gaps:
    """The gaps of one draft node: (end, length) in order."""

    gaps: list[tuple[float, float]] = field(default_factory=list)
    failed: str | None = None  # why a text was not written
    _last: dict[str, float] = field(default_factory=dict)  # by session

    def hear(self, event: Event) -> None:
        if event["event"] == "fail" and event["code"] != "interrupted":
            self.failed = event["what"]
        if event["event"] == "tokens":
            session, at = event["session"], event["at"]
            if session in self._last:
                self.gaps.append((at, at - self._last[session]))
            self._last[session] = at
        if event["event"] == "finish":
            self._last.pop(event["session"], None)

    def between(self, begin: float, end: float) -> list[float]:
        """Returns the gaps that lie between two times."""
        return [gap for at, gap in self.gaps if begin <= at - gap and at <= end]


@dataclass
class Site:
    """The processes that take part."""

    plan: Plan
    say: Callable[[str], None]
    honest: list[Gaps] = field(default_factory=list)
    slow: Gaps = field(default_factory=Gaps)
    proxy: Proxy | None = None
    flood: Child | None = None
    counts: asyncio.Queue[Event] = field(default_factory=asyncio.Queue)  # of the flood

    async def phase(self) -> tuple[float, float]:
        """Waits for one phase; returns the two times between which gaps count."""
        await asyncio.sleep(self.plan.settle_s)
        begin = time.monotonic()
        await asyncio.sleep(self.plan.phase_s)
        return begin, time.monotonic()

    def honest_p95_s(self, phase: tuple[float, float]) -> float:
        for node in (*self.honest, self.slow):
            if node.failed is not None:
                raise RuntimeError(f"a text failed: {node.failed}")
        gaps = [gap for node in self.honest for gap in node.between(*phase)]
        if not gaps:
            raise RuntimeError("no honest client got two verdicts in a phase; this machine is too slow for it")
        return float(np.percentile(gaps, 95))

    async def pairs(self, what: str, disturb: Callable[[bool], Awaitable[Event]]) -> dict[str, Any]:
        """Runs calm and disturbed phases in turn; returns their figures."""
        pairs: list[dict[str, Any]] = []
        for number in range(self.plan.num_pairs):
            p95_s, notes = {}, {}
            for disturbed in (False, True) if number % 2 == 0 else (True, False):
                await disturb(disturbed)
                phase = await self.phase()
                p95_s[disturbed] = self.honest_p95_s(phase)
                notes[disturbed] = await disturb(False) | {"slow_gap_s": median(self.slow.between(*phase))}
            ratio = p95_s[True] / p95_s[False]
            pairs.append({"calm_p95_s": p95_s[False], "disturbed_p95_s": p95_s[True], "ratio": ratio} | notes[True])
            pairs[-1]["calm_slow_gap_s"] = notes[False]["slow_gap_s"]
            self.say(f"{what:<12} {p95_s[False] * 1e3:>9.1f} {p95_s[True] * 1e3:>12.1f} {ratio:>7.3f}")
        ratio = statistics.median(pair["ratio"] for pair in pairs)
        self.say(f"{what}: median {ratio:.3f} (wanted: at most {WANTED:.2f})")
        return {"what": what, "ratio": ratio, "reached": ratio <= WANTED, "pairs": pairs}

    async def set_flood(self, rate: int, is_on: bool) -> Event:
        """Sets the flood's rate; returns what it sent, and what was refused, since the last call."""
        assert self.flood is not None
        assert self.flood.process.stdin is not None
        self.flood.process.stdin.write(f"{rate if is_on else 0}\n".encode())
        return await asyncio.wait_for(self.counts.get(), START_S)

    async def set_slow(self, delay_s: float, is_on: bool) -> Event:
        assert self.proxy is not None
        self.proxy.delay_s = delay_s if is_on else 0.0
        return {}

    async def delay_for(self, times: float) -> float:
        """Returns the one-way delay that makes the slow client's gaps `times` as long: a guess, corrected twice."""
        fast = median(self.slow.between(*await self.phase())) or 0.01
        delay = (times - 1) * fast / 2
        for _ in range(2):
            await self.set_slow(delay, True)
            slowed = median(self.slow.between(*await self.phase())) or times * fast
            delay *= (times - 1) * fast / max(slowed - fast, 0.1 * times * fast)
        await self.set_slow(0.0, False)
        self.say(f"the slow client: {fast * 1e3:.1f} ms between verdicts, {delay * 1e3:.0f} ms more each way")
        return delay


def median(gaps: list[float]) -> float:
    return statistics.median(gaps) if gaps else 0.0


async def run(plan: Plan, say: Callable[[str], None]) -> list[dict[str, Any]]:
    site = Site(plan, say)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "prompts.jsonl"
        texts = load()
        lines = (prompts.to_json(Prompt(one.prompt, one.domain, one.seed)) for one in texts * (NUM_TEXTS // len(texts)))
        file.write_text("\n".join(lines), "utf-8")
        async with Processes(environment()) as processes:
            verify = await processes.start("the verify node", verify_command(), ignore)
            endpoint = str((await verify.expect("ready", START_S))["endpoint"])
            with Proxy(endpoint) as site.proxy:
                await start(processes, site, endpoint, file)
                say(f"{'disturbed by':<12} {'calm p95':>9} {'disturbed ms':>12} {'ratio':>7}")
                results = [await site.pairs("slow", partial(site.set_slow, await site.delay_for(SLOWER)))]
                for rate in plan.rates:
                    results.append(await site.pairs(f"flood {rate}/s", partial(site.set_flood, rate)))
    return results


async def start(processes: Processes, site: Site, endpoint: str, file: Path) -> None:
    """Starts all processes but the verify node."""
    nodes: dict[str, Gaps] = defaultdict(Gaps, {"slow": site.slow})
    children = []
    for name in (*(f"honest-{number + 1}" for number in range(site.plan.num_honest)), "slow"):
        address = endpoint if name != "slow" or site.proxy is None else site.proxy.endpoint
        children.append(await processes.start(name, draft_command(name, address, file), nodes[name].hear))
    site.honest = [gaps for name, gaps in nodes.items() if name != "slow"]
    words = [sys.executable, "-m", "experiments.benchmarks.nodes.flood", endpoint, "flood"]

    def hear(event: Event) -> None:
        if event["event"] == "counts":
            site.counts.put_nowait(event)

    site.flood = await processes.start("flood", words, hear, takes_input=True)
    assert site.flood.process.stdin is not None
    site.flood.process.stdin.write(f"{checkpoints.load('tiny-target').tokenizer_fingerprint}\n".encode())
    await asyncio.gather(site.flood.expect("ready", START_S), *(child.expect("tokens", START_S) for child in children))


def verify_command() -> list[str]:
    return command("verify_node", "--model=tiny-target", "--bind=tcp://127.0.0.1:0")


def draft_command(name: str, endpoint: str, file: Path) -> list[str]:
    options = (f"--name={name}", f"--verify={endpoint}", f"--prompts={file}", "--max-sessions=1")
    return command("draft_node", "--model=tiny-draft-s", f"--max-tokens={MAX_TOKENS}", *options)


def main() -> int:
    parser = benchmark.parser("disturbed", __doc__, "one honest client, one short pair of each kind")
    parser.add_argument("--honest", type=int, metavar="N", help="honest clients; default: 4, or 1 with --quick")
    parser.add_argument(
        "--phase-s", type=float, metavar="S", help="length of a phase; default: 20, or 1.2 with --quick"
    )
    options = parser.parse_args()
    plan = QUICK if options.quick else FULL
    if options.honest is not None:
        plan = replace(plan, num_honest=max(1, options.honest))
    if options.phase_s is not None:
        plan = replace(plan, phase_s=max(1.0, options.phase_s))
    say = partial(benchmark.say, options)
    results = asyncio.run(run(plan, say))
    benchmark.report(options, {"benchmark": "disturbed", "plan": asdict(plan), "wanted": WANTED, "results": results})
    return 0


if __name__ == "__main__":
    sys.exit(main())
