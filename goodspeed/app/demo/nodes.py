"""Builds the command lines of a run's nodes, starts the nodes, and shows the progress."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

from goodspeed.app.demo.options import Client, DemoConfig, takes_tokenizer
from goodspeed.app.demo.processes import Child, Event, Processes
from goodspeed.app.demo.view import View
from goodspeed.serving.options import NO_MODEL
from goodspeed.untrusted import python_module

FREE_PORT = "127.0.0.1:0"
"""Port 0: the system chooses a port; the node's `ready` event reports it."""

START_S = 300.0
"""Time for a node to get ready; long, because all nodes import their libraries at once."""

REPEAT_S = 10.0
"""Time after which the view repeats the current step."""

MAX_NAMED = 4
"""Most awaited nodes that the view names."""


def verify_command(config: DemoConfig, log_level: str) -> list[str]:
    """Returns the verify node's command line."""
    words = [f"--model={config.target}", f"--bind=tcp://{FREE_PORT}", f"--budget={config.budget}"]
    words += [f"--policy={config.policy}", f"--max-sessions={max(1024, config.clients)}"]
    words += [f"--slo-tier={tier}" for tier in config.slo_tier]
    return _command("verify_node", [*words, *(["--record"] if config.record else [])], config, log_level)


def draft_command(config: DemoConfig, client: Client, endpoint: str, log_level: str) -> list[str]:
    """Returns a draft node's command line. The prompt follows on standard input or over HTTP."""
    words = [f"--model={client.draft_model}", f"--verify={endpoint}", f"--name={client.name}"]
    words += [f"--verification={config.verification}"]
    if takes_tokenizer(client.draft_model):
        words += [f"--tokenizer={config.target}"]
    if client.draft_model != NO_MODEL:
        words += [f"--proposal={config.proposal}", *(["--drafter=model"] if config.drafters == "model" else [])]
    if not config.http:  # else requests carry these
        words += ["--prompts=-", f"--max-tokens={config.max_tokens}", f"--temperature={config.temperature}"]
        words += [f"--tier={client.tier}"] if client.tier is not None else []
    return _command("draft_node", words, config, log_level)


def _command(module: str, words: list[str], config: DemoConfig, log_level: str) -> list[str]:
    shared = [f"--http={FREE_PORT}"] if config.http else []
    shared += [f"--preset={config.preset}"] if config.preset is not None else []
    return [*python_module(module), *words, *shared, "--json", "--quiet", f"--log-level={log_level}"]


async def start_verify(
    config: DemoConfig, processes: Processes, listen: Callable[[Event], None], log_level: str, view: View
) -> Child:
    """Starts the verify node without waiting until it is ready."""
    view.say(
        f"starting one verify node and {_draft_nodes(config.clients)}; "
        "with the embedded models and two idle cores this takes about 20 s"
    )
    return await processes.start("the verify node", verify_command(config, log_level), listen)


async def wait_for_verify(config: DemoConfig, verify: Child, view: View) -> str:
    """Waits until the verify node is ready; returns its endpoint."""

    def detail() -> str:
        return f"; it said last: {verify.last_said}" if verify.last_said else ""

    async with waiting(view, lambda: f"the verify node is loading {config.model_name}", detail):
        ready = await verify.expect("ready", START_S)
    view.say(f"the verify node is ready at {ready['endpoint']}; starting {_draft_nodes(config.clients)}")
    if config.http:
        view.say(f"the page is at {ready['url']}")
    return str(ready["endpoint"])


async def start_drafts(
    config: DemoConfig,
    clients: list[Client],
    endpoint: str,
    processes: Processes,
    listen: Callable[[str, Event], None],
    log_level: str,
    view: View,
) -> list[Child]:
    """Starts all draft nodes at once; waits until all are connected to the verify node at `endpoint`."""
    drafts = []
    for client in clients:
        command = draft_command(config, client, endpoint, log_level)
        heard = partial(listen, client.name)
        drafts.append(await processes.start(client.name, command, heard, takes_input=not config.http))
    missing = [draft.name for draft in drafts]

    def told() -> str:
        return (
            f"{len(drafts) - len(missing)} of {_draft_nodes(len(drafts))} {'is' if len(drafts) == 1 else 'are'} ready"
        )

    def detail() -> str:
        if len(missing) > MAX_NAMED:
            return "; the others are loading their libraries and models"
        return f"; waiting for {', '.join(missing)}"

    async def wait_for(draft: Child) -> None:
        await draft.expect("connected", START_S)
        missing.remove(draft.name)
        view.doing(told())

    async with waiting(view, told, detail):
        await asyncio.gather(*map(wait_for, drafts))
    if config.http:
        for draft in drafts:
            view.say(f"{draft.name} serves the OpenAI API at {(await draft.expect('ready', START_S))['url']}/v1")
    return drafts


@asynccontextmanager
async def waiting(view: View, told: Callable[[], str], detail: Callable[[], str] = str) -> AsyncIterator[None]:
    """Shows the current step, and repeats it with a detail every REPEAT_S, until the block ends."""

    async def repeat() -> None:
        started = time.monotonic()
        while True:
            await asyncio.sleep(REPEAT_S)
            view.doing(told() + detail(), time.monotonic() - started)

    repeating = asyncio.create_task(repeat())
    view.doing(told())
    try:
        yield
    finally:
        repeating.cancel()
        view.done()


def _draft_nodes(number: int) -> str:
    return f"{number} draft node{'' if number == 1 else 's'}"
