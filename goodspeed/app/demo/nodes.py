"""Builds the command lines of a demo's nodes, and starts the nodes."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from goodspeed.app.demo.options import DemoConfig, draft_words, shown
from goodspeed.app.demo.processes import Child, Event, Processes
from goodspeed.app.demo.view import View
from goodspeed.untrusted import python_module

FREE_PORT = "127.0.0.1:0"
"""Port 0: the system chooses a port; the node's `ready` event reports it."""

START_S = 300.0
"""Time for a node to get ready; long, because several nodes import their libraries at once."""


@dataclass(frozen=True)
class Nodes:
    """The nodes of a demo, ready. page: the verify node's, with --http; urls: of the draft nodes."""

    verify: Child
    page: str | None
    urls: list[str]


def verify_command(config: DemoConfig, log_level: str) -> list[str]:
    """Returns the verify node's command line."""
    words = [f"--model={config.model}", f"--bind=tcp://{FREE_PORT}", f"--policy={config.policy}"]
    words += [f"--http={FREE_PORT}"] if config.http else []
    return _command("verify_node", config, [*words, *config.verify_option], log_level)


def draft_command(config: DemoConfig, name: str, draft_model: str, endpoint: str, log_level: str) -> list[str]:
    """Returns a draft node's command line. It keeps no history: a run must not draft from the answers of an earlier
    one."""
    words = [f"--verify={endpoint}", f"--name={name}", f"--http={FREE_PORT}", "--history=off"]
    words += draft_words(draft_model, config.model)
    return _command("draft_node", config, [*words, *config.draft_option], log_level)


def _command(module: str, config: DemoConfig, words: list[str], log_level: str) -> list[str]:
    shared = [f"--preset={config.preset}"] if config.preset is not None else []
    return [*python_module(module), *words, *shared, "--json", f"--log-level={log_level}"]


async def start(
    config: DemoConfig, processes: Processes, guard: Callable[[Child], None], log_level: str, view: View
) -> Nodes:
    """Starts the nodes; waits until they serve and are connected. guard: called with each node that has started."""
    started = time.monotonic()

    async def begin(name: str, command: list[str], *awaited: str) -> tuple[Child, Event]:
        child = await processes.start(name, command)
        guard(child)
        first, *_ = [await child.expect(kind, START_S) for kind in awaited]
        return child, first

    with view.working(f"starting the verify node with {shown(config.model)}"):
        verify, ready = await begin("the verify node", verify_command(config, log_level), "ready")
    names = config.draft_model_names()
    with view.working(f"starting {len(names)} draft nodes with {', '.join(map(shown, names))}"):
        commands = [
            (f"draft-{number}", draft_command(config, f"draft-{number}", name, ready["endpoint"], log_level))
            for number, name in enumerate(names, 1)
        ]
        drafts = await asyncio.gather(*(begin(*command, "ready", "connected") for command in commands))
    alone = "" if config.verify_option else "; each computes on one core"
    view.say(f"all nodes are ready after {time.monotonic() - started:.0f} s{alone}")
    return Nodes(verify, ready["url"], [str(event["url"]) for _, event in drafts])
