"""Real nodes as processes of their own, for benchmarks: a verify node, and draft nodes that are told what to ask for.

A draft worker (`python -m experiments.benchmarks.nodes.workers`, with the options of `goodspeed-draft`) reads one JSON
object a line, whose requests it serves in turn, so many at once, or each when it is due, and answers with one JSON list
of their results. So the parent starts everybody at once, and times nothing but serving. A list that comes while another
one is served ends that one, of which nothing is told. An empty list is answered as soon as a verify node is there.
"""

import argparse
import asyncio
import contextlib
import os
import secrets
import select
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

import msgspec

from draft_node.cli import build_parser
from draft_node.config import DraftConfig
from draft_node.core.actions import Deliver, Fail
from draft_node.core.generation import Generation
from experiments.benchmarks.nodes.processes import free_port, stay_on
from experiments.harness.forks import Fork
from goodspeed.app.demo.options import draft_words
from goodspeed.serving.config import from_namespace
from goodspeed.slo.attainment import NO_OBJECTIVES, Outcome, Times
from goodspeed.slo.objectives import Objectives
from goodspeed.wire.fields import MAX_DRAFT
from goodspeed.wire.messages import Sampling

CONNECT_TIMEOUT_S = 300.0  # a verify node with 14B parameters loads for minutes
TARGET = "tiny-target"

STDERR = 2
Process: TypeAlias = "subprocess.Popen[str] | Fork"


@dataclass(frozen=True)
class Wanted:
    """A request for one generation."""

    prompt: list[int]
    max_tokens: int
    temperature: float
    seed: int
    max_draft: int = MAX_DRAFT
    slo: Objectives | None = None  # what it is to keep
    due_s: float | None = None  # when it comes, since the list did; None: when the one before it is done
    stop_ids: list[int] = field(default_factory=list)  # tokens that end it; none: it has `max_tokens`


@dataclass(frozen=True)
class Asked:
    """Requests that a draft worker serves next."""

    wanted: list[Wanted]
    at_once: int = 1  # of those that are not due at a time of their own


@dataclass(frozen=True)
class Served:
    """The result of one generation."""

    tokens: list[int]
    num_drafted: int
    num_accepted: int
    seconds: float
    drafted: dict[str, int] = field(default_factory=dict)  # num_drafted by source
    accepted: dict[str, int] = field(default_factory=dict)
    ttft_s: float = 0.0  # until the first token, since the request was due
    tpot_s: float = 0.0  # mean time of a token after the first one
    outcome: Outcome | None = None  # of what it was to keep; None: nothing
    promised: bool | None = None  # whether the verify node promised that; None: it said nothing of it
    delivered: list[tuple[float, int]] = field(default_factory=list)  # seconds since it was due, and tokens that came


Answer = TypeVar("Answer")


class DraftWorker:
    """A draft node's process, as its parent sees it."""

    def __init__(
        self,
        name: str,
        endpoint: str,
        model: str,
        options: Sequence[str],
        core: int | None,
        before: Sequence[str] = (),
        *,
        target: str = TARGET,
        launch: Callable[[Sequence[str], int | None], Process] | None = None,
    ) -> None:
        """before: words before the module on the command line. target: its tokenizer is given where there is need.

        launch: `fork`; None: `start`.
        """
        words = [f"--name={name}", f"--verify={endpoint}", *draft_words(model, target), *options]
        words += [f"--connect-timeout-s={CONNECT_TIMEOUT_S}"]  # the verify node may load for longer than this node
        self.name = name
        self._process = (launch or start)([*before, "experiments.benchmarks.nodes.workers", *words], core)

    def wait_until_connected(self, verify: Process) -> None:
        """Raises RuntimeError if this node or the verify node ends before."""
        assert self._process.stdout is not None
        while not select.select([self._process.stdout], [], [], 1.0)[0]:
            if verify.poll() is not None:
                raise RuntimeError("the verify node ended; what it said is above")
        self._read(str)

    def ask(self, wanted: Sequence[Wanted], at_once: int = 1) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(_line(Asked(list(wanted), at_once)))
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def answer(self) -> list[Served]:
        return self._read(list[Served])

    def _read(self, kind: type[Answer]) -> Answer:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._ended()
        return msgspec.json.decode(line, type=kind)

    def _ended(self) -> RuntimeError:
        return RuntimeError(f"draft node {self.name} ended; what it said is above")

    def stop(self) -> None:
        end(self._process)


@contextlib.contextmanager
def cluster(
    draft_models: Sequence[str],
    verify_options: Sequence[str],
    draft_options: Sequence[str] = (),
    *,
    target: str = TARGET,
    pin: bool = False,
    before: Callable[[int | None], Sequence[str]] = lambda _: (),
) -> Iterator[list[DraftWorker]]:
    """Yields draft nodes, one for each of the models, connected to a verify node; ends all processes at the end.

    pin: the verify node has the last core to itself and the draft nodes share the others, as if they were elsewhere.
    before: words before a node's module on its command line. number: a draft node's; None: the verify node.
    """
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    cores = sorted(os.sched_getaffinity(0)) if pin and hasattr(os, "sched_getaffinity") else []
    alone = cores[-1] if len(cores) > 1 else None
    verify = start([*before(None), "verify_node", f"--model={target}", f"--bind={endpoint}", *verify_options], alone)
    workers: list[DraftWorker] = []
    try:
        for number, model in enumerate(draft_models):
            core = cores[number % (len(cores) - 1)] if alone is not None else None
            name = f"client-{number + 1}"
            workers.append(DraftWorker(name, endpoint, model, draft_options, core, before(number), target=target))
        for worker in workers:
            worker.wait_until_connected(verify)
        yield workers
    finally:
        for worker in workers:
            worker.stop()
        end(verify)


def serve_all(workers: Sequence[DraftWorker], wanted: Sequence[Sequence[Wanted]]) -> tuple[float, list[list[Served]]]:
    """Has all workers serve their lists at once; returns the seconds until the last is done, and the results."""
    started = time.perf_counter()
    for worker, own in zip(workers, wanted, strict=True):
        worker.ask(own)
    served = [worker.answer() for worker in workers]
    return time.perf_counter() - started, served


def start(module_and_options: Sequence[str], core: int | None) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", *module_and_options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    stay_on(process.pid, None if core is None else [core])
    return process


def fork(
    module_and_options: Sequence[str], core: int | None, settings: Mapping[str, object] = MappingProxyType({})
) -> Fork:
    """Starts a node much as `start` does, without the seconds that its imports take. settings: as of a `Fork`."""
    process = Fork(*module_and_options, reads=True, stderr=STDERR, settings=settings)
    stay_on(process.pid, None if core is None else [core])
    return process


def end(process: Process) -> None:
    process.terminate()
    try:
        process.communicate(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


# -- in the draft worker's process -------------------------------------------------------------------------------------


def work() -> None:
    parser: argparse.ArgumentParser = build_parser()
    asyncio.run(_work(from_namespace(DraftConfig, parser.parse_args())))


async def _work(config: DraftConfig) -> None:
    from draft_node.process.assembly import assemble
    from draft_node.process.preflight import read_keys

    daemon, _ = assemble(config, read_keys(config))
    serving = asyncio.create_task(daemon.serve())
    connected = asyncio.create_task(daemon.connected.wait())
    await asyncio.wait([serving, connected], timeout=CONNECT_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        serving.result()
    print(_line("connected"), end="", flush=True)
    answering: asyncio.Task[None] | None = None
    async with asyncio.TaskGroup() as tasks:
        async for line in _lines():
            if answering is not None:
                answering.cancel()
                await asyncio.wait([answering])
            asked = msgspec.json.decode(line, type=Asked)
            answering = tasks.create_task(_answer(daemon, asked, config))
        if answering is not None:
            answering.cancel()
    serving.cancel()


async def _lines() -> AsyncIterator[str]:
    while line := await asyncio.to_thread(sys.stdin.readline):
        yield line


def _line(what: Any) -> str:
    return msgspec.json.encode(what).decode() + "\n"


async def _answer(daemon: Any, asked: Asked, config: DraftConfig) -> None:
    await daemon.connected.wait()
    print(_line(await _serve_all(daemon, asked, config)), end="", flush=True)


async def _serve_all(daemon: Any, asked: Asked, config: DraftConfig) -> list[Served]:
    began, places = time.monotonic(), asyncio.Semaphore(asked.at_once)

    async def in_turn(one: Wanted) -> Served:
        async with places:
            return await _serve(daemon, one, time.monotonic(), config)

    if all(one.due_s is None for one in asked.wanted):
        return await asyncio.gather(*(in_turn(one) for one in asked.wanted))
    return await asyncio.gather(*(_serve(daemon, one, began + (one.due_s or 0.0), config) for one in asked.wanted))


async def _serve(daemon: Any, wanted: Wanted, due: float, config: DraftConfig) -> Served:
    await asyncio.sleep(max(0.0, due - time.monotonic()))
    request = _request(wanted, due, config)
    tokens: list[int] = []
    delivered: list[tuple[float, int]] = []
    times = Times(due, wanted.slo or NO_OBJECTIVES)
    session: Any = None
    async for item in daemon.generate(request):
        session = daemon.core.sessions[request.session_id]
        if isinstance(item, Deliver):
            tokens += item.tokens
            now = time.monotonic()
            times.delivered(len(item.tokens), now)
            delivered.append((now - due, len(item.tokens)))
        elif isinstance(item, Fail):
            raise RuntimeError(f"{item.code}: {item.what}")
    assert session is not None
    statistics = session.statistics
    return Served(
        tokens,
        statistics.num_drafted,
        statistics.num_accepted,
        time.monotonic() - due,
        dict(statistics.drafted),
        dict(statistics.accepted),
        times.ttft_s or 0.0,
        times.tpot_s or 0.0,
        times.kept().outcome if wanted.slo is not None else None,
        session.promised,
        delivered,
    )


def _request(wanted: Wanted, asked_at: float, config: DraftConfig) -> Generation:
    """A generation by the draft node's own options; where nothing of a draft node is to be verified, nothing that the
    verify node drafts is, either."""
    return Generation(
        session_id=secrets.token_bytes(16),
        prompt=tuple(wanted.prompt),
        sampling=Sampling(temperature=wanted.temperature, seed=wanted.seed),
        max_tokens=wanted.max_tokens,
        stop_ids=tuple(wanted.stop_ids),
        verification=config.verification,
        max_draft=wanted.max_draft,
        drafter=config.drafter if wanted.max_draft else "none",
        slo=wanted.slo,
        asked_at=asked_at,
    )


if __name__ == "__main__":
    work()
