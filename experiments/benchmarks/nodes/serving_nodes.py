"""A verify node and draft nodes with HTTP faces, as processes, for `serving.py`.

All but the last draft node are `goodspeed-draft --http` itself. The last is this module, run with the same options: the
same, and it has a back door. Each line of its standard input is a list of texts that it writes all at once with a
`Service` of its own, without HTTP, and tells how long that took. So both ways go through one process, one model and
one connection to the verify node.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from experiments.benchmarks.nodes.http_load import Address
from experiments.benchmarks.nodes.processes import START_S
from experiments.benchmarks.nodes.workers import free_port
from goodspeed.app.demo.processes import Child, Event, Processes, environment

DRAFT_MODELS = ("tiny-draft-m", "tiny-draft-s")


@dataclass(frozen=True)
class Text:
    """A request for one text, which does not end before `max_tokens`."""

    prompt: str
    max_tokens: int
    temperature: float
    seed: int
    speculate: bool  # False: the target alone decodes, token by token

    def body(self) -> dict[str, Any]:
        body = asdict(self)
        return {"ignore_eos": True, "goodspeed": {"speculate": body.pop("speculate")}, **body}


@dataclass(frozen=True)
class Direct:
    """The result of a list of texts without HTTP."""

    texts: list[str]
    num_tokens: int
    seconds: float


@dataclass(frozen=True)
class Nodes:
    """The nodes' processes, as their parent sees them."""

    verify: Child
    drafts: Sequence[Child]
    addresses: Sequence[Address]  # of the draft nodes
    answered: asyncio.Queue[Event]  # by the back door

    async def direct(self, texts: Sequence[Text]) -> Direct:
        """Has the last draft node write the texts without HTTP."""
        stdin = self.drafts[-1].process.stdin
        assert stdin is not None
        stdin.write(json.dumps([asdict(text) for text in texts]).encode() + b"\n")
        event = await asyncio.wait_for(self.answered.get(), START_S)
        return Direct(event["texts"], event["num_tokens"], event["seconds"])

    def cpu_s(self) -> tuple[float, float]:
        """Returns the CPU seconds so far of the last draft node and of the verify node."""
        return cpu_s(self.drafts[-1]), cpu_s(self.verify)


@asynccontextmanager
async def nodes(num_drafts: int) -> AsyncIterator[Nodes]:
    """Yields nodes that are connected and ready, and ends their processes at the end."""
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    answered: asyncio.Queue[Event] = asyncio.Queue()

    def hear(event: Event) -> None:
        if event["event"] == "direct":
            answered.put_nowait(event)

    async with Processes(environment()) as processes:
        # Without --json: its events of every round would be work for it and for us.
        options = ["--model=tiny-target", f"--bind={endpoint}", "--log-level=error"]
        verify = await processes.start("the verify node", command("verify_node", options), hear)
        drafts = []
        for number in range(num_drafts):
            module = "draft_node" if number < num_drafts - 1 else "experiments.benchmarks.nodes.serving_nodes"
            words = draft_options(f"draft-{number + 1}", DRAFT_MODELS[(number - num_drafts + 1) % 2], endpoint)
            drafts.append(await processes.start(words[0], command(module, words), hear, takes_input=True))
        ready = [await draft.expect("ready", START_S) for draft in drafts]
        await asyncio.gather(*(draft.expect("connected", START_S) for draft in drafts))
        yield Nodes(verify, drafts, [_address(event["url"]) for event in ready], answered)


def draft_options(name: str, model: str, endpoint: str) -> list[str]:
    options = [f"--name={name}", f"--model={model}", f"--verify={endpoint}", "--http=127.0.0.1:0"]
    return [*options, "--drain-timeout-s=0", "--json", "--log-level=error"]


def command(module: str, options: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", module, *options]


def cpu_s(child: Child) -> float:
    """Returns a process's CPU seconds so far, by Linux's account."""
    fields = Path(f"/proc/{child.process.pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _address(url: str) -> Address:
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    return Address(parts.hostname, parts.port)


# -- in the process of the last draft node -----------------------------------------------------------------------------


def work() -> int:
    from draft_node.cli import build_parser
    from draft_node.config import DraftConfig
    from goodspeed.serving.config import from_namespace
    from goodspeed.serving.running import run

    return run(
        "serving_nodes", build_parser(), lambda options: asyncio.run(_work(from_namespace(DraftConfig, options))) or 0
    )


async def _work(config: Any) -> None:
    from draft_node.assembly import assemble
    from draft_node.http.server import HttpServer
    from draft_node.service import standard_input
    from draft_node.service.service import Service
    from goodspeed.serving.events import EventLog
    from goodspeed.serving.running import until_signal

    daemon, checkpoint = assemble(config)
    events = EventLog(enabled=True)
    server = HttpServer(config, checkpoint, daemon, events, None)
    service = Service(daemon, checkpoint, max_waiting=config.http_max_waiting)

    async def open_back_door() -> None:
        async with aclosing(standard_input.lines()) as lines:
            async for line in lines:
                events.write("direct", **asdict(await write_all(service, [Text(**text) for text in json.loads(line)])))

    asking = asyncio.create_task(open_back_door())
    await until_signal(server.run())
    asking.cancel()


async def write_all(service: Any, texts: Sequence[Text]) -> Direct:
    """Writes all texts at once, each for its own user of this process."""
    started = time.perf_counter()
    written = await asyncio.gather(*(_write(service, text) for text in texts))
    seconds = time.perf_counter() - started
    return Direct([text for text, _ in written], sum(num_tokens for _, num_tokens in written), seconds)


async def _write(service: Any, text: Text) -> tuple[str, int]:
    from draft_node.service.answer import Piece
    from draft_node.service.request import Ended, Wanted
    from goodspeed.wire.fields import MAX_DRAFT
    from goodspeed.wire.messages import Sampling

    wanted = Wanted(
        prompt=await service.encode(text.prompt, "benchmark"),
        sampling=Sampling(temperature=text.temperature, seed=text.seed),
        max_tokens=text.max_tokens,
        ignore_eos=True,
        max_draft=MAX_DRAFT if text.speculate else 0,
    )
    written, num_tokens = "", 0
    async with aclosing(service.write(wanted)) as items:
        async for item in items:
            if isinstance(item, Piece):
                written += item.text
            elif isinstance(item, Ended):
                num_tokens = item.num_tokens
    return written, num_tokens


if __name__ == "__main__":
    sys.exit(work())
