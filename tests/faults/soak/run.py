"""Runs one soak from its beginning to its end: users ask, faults strike, and the report gets what was seen."""

import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from tests.faults import texts
from tests.faults.soak.judging import Tally, Text, Weather
from tests.faults.soak.plan import VERIFY, Plan
from tests.faults.soak.resources import Life, Records
from tests.faults.soak.site import Site
from tests.faults.soak.users import Desk, User, pool
from tests.faults.texts import Comparison, Wanted

SAMPLE_S = 5.0
WATCH_S = 1.0
PROGRESS_S = 60.0
SETTLE_S = 30.0
"""The time for sessions and pages to be given back after the last text; a lost peer has them for its lease."""


@dataclass
class Outcome:
    """All that came of it."""

    plan: Plan
    tally: Tally = field(default_factory=Tally)
    weather: Weather = field(default_factory=Weather)
    records: Records = field(default_factory=Records)
    tokens_by_node: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)  # texts not let in while something was wrong, by reason
    odd_refusals: Counter[str] = field(default_factory=Counter)  # ... while nothing was
    ended_by_themselves: list[str] = field(default_factory=list)
    tracebacks: list[str] = field(default_factory=list)
    own_failures: list[str] = field(default_factory=list)  # faults that could not be done, texts that were not judged
    left_over: dict[str, float] = field(default_factory=dict)  # what nodes hold when no text is left
    statuses: dict[str, int | None] = field(default_factory=dict)
    verify_refusals: dict[str, float] = field(default_factory=dict)  # messages, by reason, since its last start
    took_s: float = 0.0


async def soak(plan: Plan) -> Outcome:
    """Its processes are gone when it returns, or is cancelled."""
    outcome = Outcome(plan)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="goodspeed-soak-") as folder, ThreadPoolExecutor(1) as judges:
        running = _Running(outcome, judges)
        async with Site(Path(folder), plan.cast, outcome.weather, running.clock) as site:
            await running.through(site)
    outcome.took_s = time.monotonic() - began
    return outcome


class _Running:
    def __init__(self, outcome: Outcome, judges: ThreadPoolExecutor) -> None:
        self.outcome, self.plan, self._judges = outcome, outcome.plan, judges
        self.desk = Desk(self.clock, self._ended, self._refused)
        self._started_at = time.monotonic()
        self._judging: set[asyncio.Task[None]] = set()
        self._not_judged: list[BaseException] = []  # why texts were not: a mistake of the judge's
        self._told_of: set[Life] = set()

    def clock(self) -> float:
        return time.monotonic() - self._started_at

    async def through(self, site: Site) -> None:
        """Load and faults, then calm, then the end of all nodes."""
        self.site = site
        self._started_at = time.monotonic()
        users = self._users(site)
        tasks = [asyncio.create_task(each) for each in (*users, self._watch(), self._sample(), self._tell())]
        striking = asyncio.create_task(self._strike())
        try:
            await self._sleep_until(self.plan.duration_s)
            self.desk.is_open = False
            await striking
            await site.rest()
            while self.desk.running:
                await asyncio.sleep(0.1)
            await self._settle()
        finally:
            for task in (*tasks, striking):
                task.cancel()
            failures = await asyncio.gather(*tasks, striking, return_exceptions=True)
        for failure in failures:
            if isinstance(failure, Exception):
                raise failure
        await self._judge_all()
        self.outcome.own_failures += [repr(failure) for failure in (*site.failures, *self._not_judged)]
        await site.end()
        self.outcome.statuses = dict(site.statuses)
        self.outcome.tracebacks += [f"{node.name}: {line}" for node in site.nodes.values() for line in node.tracebacks]

    def _users(self, site: Site) -> list[Coroutine[Any, Any, None]]:
        """Returns as many users as texts are to run, dealt out to the nodes."""
        wanted = pool(self.plan.seed)
        places = Counter(self.plan.cast[n % self.plan.num_nodes].name for n in range(self.plan.num_texts))
        asking: list[Coroutine[Any, Any, None]] = []
        for name, num in places.items():
            role, seed = site.cast[name], f"{self.plan.seed}/{name}"
            url = str(site.nodes[name].events[0]["url"])
            asking += [User(role, url, wanted, self.desk, f"{seed}/{n}").ask_on() for n in range(num)]
        return asking

    async def _strike(self) -> None:
        for fault in self.plan.faults():
            await self._sleep_until(fault.at_s)
            self.site.strike(fault)

    async def _watch(self) -> None:
        """Texts past their deadline, and processes that nobody killed."""
        while True:
            await asyncio.sleep(WATCH_S)
            for number, text in list(self.desk.running.items()):
                if text.is_late(self.outcome.weather, self.clock()):
                    text.end("late", "", self.clock())
                    self.desk.end(number)
            for node in self.site.nodes.values():
                life = Life(node.name, node.generation)
                if not node.is_running and not self.site.is_dying(node.name) and life not in self._told_of:
                    self._told_of.add(life)
                    self.outcome.ended_by_themselves.append(f"{node.name} at {self.clock():.0f} s: {node}")

    async def _sample(self) -> None:
        while True:
            await self._sample_once()
            await asyncio.sleep(SAMPLE_S)

    async def _sample_once(self) -> None:
        records, now = self.outcome.records, self.clock()
        for node in self.site.nodes.values():
            if node.is_running:
                records.add_process(Life(node.name, node.generation), node.process.pid, now)
        try:
            metrics = await asyncio.to_thread(self.site.verify.metrics)
        except httpx2.HTTPError:
            return  # killed; the next sample is soon
        records.add_verify(metrics, now)
        prefix = "refusals_total"
        refused = {name: value for name, value in metrics.items() if name.startswith(prefix) and value}
        self.outcome.verify_refusals = {name.removeprefix(prefix): value for name, value in refused.items()}

    async def _judge_all(self) -> None:
        """Ends all that is left; on a busy machine that may be much."""
        while self._judging:
            await asyncio.wait(self._judging, timeout=PROGRESS_S)
            if self._judging:
                print(f"{len(self._judging)} texts are still to be compared", file=sys.stderr, flush=True)

    async def _settle(self) -> None:
        """Waits until nothing is held, or for so long; what is held then is left over."""
        deadline = time.monotonic() + SETTLE_S
        while True:
            self.outcome.left_over = await self._held()
            if not self.outcome.left_over or time.monotonic() > deadline:
                return
            await asyncio.sleep(0.5)

    async def _held(self) -> dict[str, float]:
        held = {}
        for node in self.site.nodes.values():
            try:
                metrics = await asyncio.to_thread(node.metrics)
            except httpx2.HTTPError as error:
                held[f"{node.name} does not answer: {error!r}"] = 1.0
                continue
            for name in ("kv_cache_usage_perc", "num_requests_running", "num_requests_waiting"):
                if value := metrics[name]:
                    held[f"{node.name} {name}"] = value
        return held

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(PROGRESS_S)
            print(self._line(), file=sys.stderr, flush=True)

    def _line(self) -> str:
        verdicts = ", ".join(f"{num} {name}" for name, num in sorted(self.outcome.tally.verdicts.items()))
        rss = {name: series.values[-1] for (life, name), series in self.outcome.records.of_processes.items()
               if name == "rss_mb" and life.name == VERIFY}  # fmt: skip
        return (
            f"minute {self.clock() / 60:.0f} of {self.plan.minutes:g}: {verdicts}; {len(self.desk.running)} running, "
            f"{self.outcome.tally.num_tokens} tokens, {len(self.outcome.weather.episodes)} faults, "
            f"verify node {rss.get('rss_mb', 0.0):.0f} MB, "
            f"{len(self.outcome.tally.broken) + len(self.outcome.ended_by_themselves)} broken promises"
        )

    # -- texts that ended ------------------------------------------------------------------------------------------

    def _ended(self, text: Text) -> None:
        task = asyncio.create_task(self._judge(text))
        self._judging.add(task)
        task.add_done_callback(self._judged)

    def _judged(self, task: "asyncio.Task[None]") -> None:
        self._judging.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._not_judged.append(error)

    async def _judge(self, text: Text) -> None:
        """Judges in a thread: what the target alone writes may still have to be computed."""
        loop = asyncio.get_running_loop()
        tally, weather = self.outcome.tally, self.outcome.weather
        verdict = await loop.run_in_executor(self._judges, tally.take, text, weather, _compare)
        self.outcome.tokens_by_node[text.node] += len(text.tokens)
        if verdict in ("wrong", "broken", "late"):
            print(tally.broken[-1], file=sys.stderr, flush=True)

    def _refused(self, text: Text, why: str) -> None:
        weather = self.outcome.weather
        stormy = weather.is_stormy(text.node, text.started_at) or weather.is_stormy(text.node, self.clock())
        (self.outcome.refusals if stormy else self.outcome.odd_refusals)[why if stormy else f"{text.node}: {why}"] += 1

    async def _sleep_until(self, at_s: float) -> None:
        await asyncio.sleep(max(0.0, at_s - self.clock()))


def _compare(wanted: Wanted, got: Sequence[str], is_complete: bool) -> Comparison:
    return texts.compare(wanted, got, is_complete=is_complete)
