"""Starts the nodes of a run, and shows the progress."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

from goodspeed.app.demo import browser
from goodspeed.app.demo.commands import draft_command, verify_command
from goodspeed.app.demo.options import Client, DemoConfig
from goodspeed.app.demo.processes import Child, Event, Household
from goodspeed.app.demo.view import View

START_S = 300.0
"""How long a node may take to get ready: many of them import their libraries at once."""

REPEAT_S = 10.0
"""Time without progress after which the view repeats what is awaited."""

MAX_NAMED = 4
"""Most awaited nodes that are named."""


async def start_verify(
    config: DemoConfig, house: Household, listen: Callable[[Event], None], log_level: str, view: View
) -> Child:
    """Starts the verify node; returns before it is ready."""
    view.say(
        f"starting one verify node and {_draft_nodes(config.clients)}; "
        "with the embedded models and two idle cores this takes about 20 s"
    )
    return await house.start("the verify node", verify_command(config, log_level), listen)


async def wait_for_verify(config: DemoConfig, verify: Child, view: View) -> str:
    """Waits until it is ready; returns its endpoint. With --http, opens its window where a person is present."""

    def detail() -> str:
        return f"it said last: {verify.last_said}" if verify.last_said else ""

    async with _waiting(view, lambda: f"the verify node is loading {config.model}", detail):
        ready = await verify.expect("ready", START_S)
    view.say(f"the verify node is ready at {ready['endpoint']}; starting {_draft_nodes(config.clients)}")
    if config.http:
        await _show_window(config, ready["url"], view)
    return str(ready["endpoint"])


async def start_drafts(
    config: DemoConfig,
    clients: list[Client],
    endpoint: str,
    house: Household,
    listen: Callable[[str, Event], None],
    log_level: str,
    view: View,
) -> list[Child]:
    """Starts all draft nodes at once; returns when all are connected to the verify node at `endpoint`."""
    drafts = [
        await house.start(
            client.name,
            draft_command(config, client, endpoint, log_level),
            partial(listen, client.name),
            takes_input=not config.http,
        )
        for client in clients
    ]
    await _wait_for_drafts(drafts, view)
    if config.http:
        for draft in drafts:
            view.say(f"{draft.name} serves the OpenAI API at {(await draft.expect('ready', START_S))['url']}/v1")
    return drafts


async def _wait_for_drafts(drafts: list[Child], view: View) -> None:
    missing = [draft.name for draft in drafts]

    def told() -> str:
        return (
            f"{len(drafts) - len(missing)} of {_draft_nodes(len(drafts))} {'is' if len(drafts) == 1 else 'are'} ready"
        )

    def detail() -> str:
        if len(missing) > MAX_NAMED:
            return "the others are loading their libraries and models"
        return f"waiting for {', '.join(missing)}"

    async def wait_for(draft: Child) -> None:
        await draft.expect("connected", START_S)
        missing.remove(draft.name)
        view.doing(told())

    async with _waiting(view, told, detail):
        await asyncio.gather(*map(wait_for, drafts))


async def _show_window(config: DemoConfig, url: str, view: View) -> None:
    view.say(f"the window is at {url}")
    if config.open_page and browser.is_watched(os.environ, sys.platform, sys.stdout.isatty()):
        is_open = await asyncio.to_thread(browser.open_page, url)
        view.say("it was opened in a browser" if is_open else "no browser was found; open that address in one")


@asynccontextmanager
async def _waiting(view: View, told: Callable[[], str], detail: Callable[[], str]) -> AsyncIterator[None]:
    """Shows what is awaited, and repeats it with a detail after REPEAT_S, until the end of the block."""
    repeating = asyncio.create_task(_repeat(view, told, detail))
    view.doing(told())
    try:
        yield
    finally:
        repeating.cancel()
        view.done()


async def _repeat(view: View, told: Callable[[], str], detail: Callable[[], str]) -> None:
    started = time.monotonic()
    while True:
        await asyncio.sleep(REPEAT_S)
        view.doing("; ".join(filter(None, [told(), detail()])), time.monotonic() - started)


def _draft_nodes(number: int) -> str:
    return f"{number} draft node{'' if number == 1 else 's'}"
