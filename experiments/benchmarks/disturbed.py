"""Loss of honest clients while another is slow, hostile or greedy: their gaps between verdicts, with and without.

Real processes: a verify node with continuous rounds, honest draft nodes that write one text after another, and one that
disturbs. A gap is the time between two verdicts of one session, by its own draft node's clock (`at` of its events).

*slow*: another draft node, behind a proxy that makes the way there and back so long that its rounds take ten times as
long as at full speed (that is measured first). It costs nobody CPU to be slow. *flood*: a process that sends so many
messages a second which are all refused (`flood.py`). It runs at the lowest priority, as an attacker would have
a machine of its own; where cores are few take fewer honest clients (`--honest`), or it has no time left to send.

*prompt*: another draft node, whose user always has a new long prompt (--prompt-tokens) and wants one token of it.

Calm and disturbed phases alternate, and in every second pair their order is turned round. For each pair the ratio of
the p95s (for *prompt* of the medians, which --json calls prompt_gap_ratio); the median of the pairs is what counts.

With another target (a folder, and `--draft none` without a draft model): --by prompt --target FOLDER --draft none
--threads 1 --honest 2 --prompt-tokens 4000 --phase-s 60. A calm phase begins when the last prompt is done.

It takes about 17 minutes on two cores; about 35 s with --quick.
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

from experiments.benchmarks.nodes.greedy import Greedy, long_prompts
from experiments.benchmarks.nodes.processes import START_S, command, ignore
from experiments.benchmarks.nodes.proxy import Proxy
from experiments.harness import benchmark
from goodspeed.app.demo.processes import Child, Event, Processes, environment
from goodspeed.embedded.prompts import load
from goodspeed.engine.tokenizing import tokenizer_folder
from goodspeed.serving import prompts
from goodspeed.serving.options import draft_words
from goodspeed.serving.prompts import Prompt

SLOWER = 10.0
WANTED = 1.10
"""Wanted: the highest ratio of a disturbed phase's p95 to a calm phase's."""

PROMPT_WANTED = 3.0
"""Wanted: the highest ratio of the medians beside long prompts."""

WAYS = ("slow", "flood", "prompt")

NUM_TEXTS = 5000  # more than anybody writes
MAX_TOKENS = 150


@dataclass(frozen=True)
class Plan:
    num_honest: int
    num_pairs: int
    phase_s: float
    settle_s: float  # of each phase, before its gaps count
    rates: tuple[int, ...]  # messages a second
    prompt_tokens: int
    by: tuple[str, ...] = WAYS
    target: str = "tiny-target"
    draft: str = "tiny-draft-s"
    threads: int | None = None  # of the verify node


FULL = Plan(4, 5, 20.0, 2.0, (200, 1000), 1800)
QUICK = Plan(1, 1, 1.2, 0.2, (200,), 900)


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
    greedy: Greedy | None = None
    counts: asyncio.Queue[Event] = field(default_factory=asyncio.Queue)  # of the flood

    async def phase(self) -> tuple[float, float]:
        """Waits for one phase; returns the two times between which gaps count."""
        await asyncio.sleep(self.plan.settle_s)
        begin = time.monotonic()
        await asyncio.sleep(self.plan.phase_s)
        return begin, time.monotonic()

    def honest_gaps(self, phase: tuple[float, float]) -> list[float]:
        for node in (*self.honest, self.slow, self.greedy):
            if node is not None and node.failed is not None:
                raise RuntimeError(f"a text failed: {node.failed}")
        gaps = [gap for node in self.honest for gap in node.between(*phase)]
        if not gaps:
            raise RuntimeError("no honest client got two verdicts in a phase; this machine is too slow for it")
        return gaps

    async def pairs(
        self, what: str, disturb: Callable[[bool], Awaitable[Event]], judged: str = "p95", wanted: float = WANTED
    ) -> dict[str, Any]:
        """Runs calm and disturbed phases in turn; returns their figures. judged: the one that counts."""
        pairs: list[dict[str, Any]] = []
        for number in range(self.plan.num_pairs):
            figures, notes = {}, {}
            for disturbed in (False, True) if number % 2 == 0 else (True, False):
                await disturb(disturbed)
                phase = await self.phase()
                figures[disturbed] = figures_of(self.honest_gaps(phase))
                notes[disturbed] = await disturb(False) | {"slow_gap_s": median(self.slow.between(*phase))}
            calm, beside = (figures[disturbed] for disturbed in (False, True))
            ratio = beside[judged] / calm[judged]
            named = {
                f"{name}_{key}_s": one[key] for name, one in (("calm", calm), ("disturbed", beside)) for key in one
            }
            pairs.append(named | {"ratio": ratio} | notes[True])
            pairs[-1]["calm_slow_gap_s"] = notes[False]["slow_gap_s"]
            words = "".join(f" {1e3 * calm[key]:>7.1f} {1e3 * beside[key]:>7.1f}" for key in calm)
            self.say(f"{what:<12}{words} {ratio:>7.3f}")
        ratio = statistics.median(pair["ratio"] for pair in pairs)
        self.say(f"{what}: {judged} {ratio:.3f} times as long (wanted: at most {wanted:.2f})")
        return {"what": what, "ratio": ratio, "reached": ratio <= wanted, "pairs": pairs}

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

    async def set_prompts(self, is_on: bool) -> Event:
        assert self.greedy is not None
        return await self.greedy.ask(is_on)

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


def figures_of(gaps: list[float]) -> dict[str, float]:
    return {"median": median(gaps), "p95": float(np.percentile(gaps, 95)), "longest": max(gaps)}


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
            verify = await processes.start("the verify node", verify_command(plan), ignore)
            endpoint = str((await verify.expect("ready", START_S))["endpoint"])
            with Proxy(endpoint) as site.proxy:
                await start(processes, site, endpoint, file)
                say("ms, calm and disturbed:   median             p95         longest   ratio")
                results = []
                if "slow" in plan.by:
                    results.append(await site.pairs("slow", partial(site.set_slow, await site.delay_for(SLOWER))))
                for rate in plan.rates if "flood" in plan.by else ():
                    results.append(await site.pairs(f"flood {rate}/s", partial(site.set_flood, rate)))
                if "prompt" in plan.by:
                    results.append(await site.pairs("prompt", site.set_prompts, "median", PROMPT_WANTED))
    return results


async def start(processes: Processes, site: Site, endpoint: str, file: Path) -> None:
    """Starts all processes but the verify node."""
    nodes: dict[str, Gaps] = defaultdict(Gaps, {"slow": site.slow})
    children = []
    plan = site.plan
    for name in (*(f"honest-{number + 1}" for number in range(plan.num_honest)), *(["slow"] * ("slow" in plan.by))):
        address = endpoint if name != "slow" or site.proxy is None else site.proxy.endpoint
        words = [*draft_command(plan, name, address), f"--prompts={file}", f"--max-tokens={MAX_TOKENS}"]
        children.append(await processes.start(name, words, nodes[name].hear))
    if "prompt" in plan.by:
        words = [*draft_command(plan, "greedy", endpoint), "--http=127.0.0.1:0"]
        child = await processes.start("greedy", words, ignore)
        await child.expect("connected", START_S)
        url = (await child.expect("ready"))["url"]
        site.greedy = Greedy(long_prompts(plan.target, plan.prompt_tokens), url)
    site.honest = [gaps for name, gaps in nodes.items() if name != "slow"]
    await asyncio.gather(*(child.expect("tokens", START_S) for child in children))
    if "flood" in plan.by:
        await start_flood(processes, site, endpoint)


async def start_flood(processes: Processes, site: Site, endpoint: str) -> None:
    words = [sys.executable, "-m", "experiments.benchmarks.nodes.flood", endpoint, "flood"]

    def hear(event: Event) -> None:
        if event["event"] == "counts":
            site.counts.put_nowait(event)

    site.flood = await processes.start("flood", words, hear, takes_input=True)
    assert site.flood.process.stdin is not None
    site.flood.process.stdin.write(f"{tokenizer_folder.load(site.plan.target).tokenizer_fingerprint}\n".encode())
    await site.flood.expect("ready", START_S)


def verify_command(plan: Plan) -> list[str]:
    threads = [] if plan.threads is None else [f"--threads={plan.threads}"]
    return command("verify_node", f"--model={plan.target}", "--bind=tcp://127.0.0.1:0", *threads)


def draft_command(plan: Plan, name: str, endpoint: str) -> list[str]:
    model = draft_words(plan.draft, plan.target)
    return command("draft_node", *model, f"--name={name}", f"--verify={endpoint}", "--max-sessions=1")


def main() -> int:
    parser = benchmark.parser("disturbed", __doc__, "one honest client, one short pair of each kind")
    parser.add_argument("--honest", type=int, metavar="N", help="honest clients; default: 4, or 1 with --quick")
    parser.add_argument(
        "--phase-s", type=float, metavar="S", help="length of a phase; default: 20, or 1.2 with --quick"
    )
    parser.add_argument("--by", nargs="+", choices=WAYS, default=WAYS, help="who disturbs; default: each")
    parser.add_argument("--target", default=FULL.target, help="default: %(default)s", metavar="NAME|FOLDER")
    parser.add_argument("--draft", default=FULL.draft, help="default: %(default)s", metavar="NAME|FOLDER|none")
    parser.add_argument("--threads", type=int, metavar="N", help="of the verify node")
    parser.add_argument("--prompt-tokens", type=int, metavar="N", help="default: 1800, or 900 with --quick")
    options = parser.parse_args()
    plan = QUICK if options.quick else FULL
    plan = replace(plan, by=tuple(options.by), target=options.target, draft=options.draft, threads=options.threads)
    if options.prompt_tokens is not None:
        plan = replace(plan, prompt_tokens=max(16, options.prompt_tokens))
    if options.honest is not None:
        plan = replace(plan, num_honest=max(1, options.honest))
    if options.phase_s is not None:
        plan = replace(plan, phase_s=max(1.0, options.phase_s))
    say = partial(benchmark.say, options)
    results = asyncio.run(run(plan, say))
    found = {"benchmark": "disturbed", "plan": asdict(plan), "wanted": WANTED, "prompt_wanted": PROMPT_WANTED}
    ratio = next((result["ratio"] for result in results if result["what"] == "prompt"), None)
    benchmark.report(options, found | {"prompt_gap_ratio": ratio, "results": results})
    return 0


if __name__ == "__main__":
    sys.exit(main())
