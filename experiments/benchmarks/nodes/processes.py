"""Starts daemons for benchmarks, and ends them."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from goodspeed.app.demo.processes import Child, Processes, environment

START_S = 120.0
"""The longest that a daemon may take to be ready."""


class Nodes(NamedTuple):
    """A verify node, and draft nodes that serve HTTP."""

    verify: Child
    drafts: list[Child]
    urls: list[str]  # of the draft nodes


def command(module: str, *options: str) -> list[str]:
    """A daemon that tells its events."""
    return [sys.executable, "-m", module, *options, "--json", "--log-level=error"]


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def stay_on(pid: int, cores: Iterable[int] | None) -> None:
    """Has a process that was just started, and its threads to come, run on these cores only; None: on any."""
    if cores is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(pid, cores)


@asynccontextmanager
async def http_nodes(
    drafts: Sequence[Sequence[str]],
    *verify_options: str,
    target: str = "tiny-target",
    cores: tuple[Sequence[int], Sequence[int]] | None = None,
) -> AsyncIterator[Nodes]:
    """Yields nodes that are connected and ready, and ends their processes at the end. drafts: options of each one.

    cores: of the verify node, and of each draft node; None: any. The verify node tells no events: those of every round
    would be work for it and for us.
    """
    of_verify, of_drafts = cores or (None, None)
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    async with Processes(environment()) as processes:
        words = [f"--model={target}", f"--bind={endpoint}", "--log-level=error", *verify_options]
        verify = await processes.start("the verify node", [sys.executable, "-m", "verify_node", *words])
        stay_on(verify.process.pid, of_verify)
        shared = [f"--verify={endpoint}", "--http=127.0.0.1:0"]
        children = []
        for number, own in enumerate(drafts, 1):
            words = command("draft_node", *shared, *own)
            children.append(await processes.start(f"draft node {number}", words))
            stay_on(children[-1].process.pid, of_drafts)
        ready = [await child.expect("ready", START_S) for child in children]
        await asyncio.gather(*(child.expect("connected", START_S) for child in children))
        yield Nodes(verify, children, [str(event["url"]) for event in ready])
