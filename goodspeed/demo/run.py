"""One run: start the nodes, wait until all are ready, give everybody a prompt at the same moment, listen to the end."""

import asyncio
import signal
import time
from contextlib import aclosing
from functools import partial

from goodspeed import prompts, recording
from goodspeed.demo import users
from goodspeed.demo.commands import draft_command, environment, verify_command
from goodspeed.demo.options import Client, DemoConfig
from goodspeed.demo.processes import GRACE_S, Child, Event, Household, wait_for_ends
from goodspeed.demo.recorder import Recorder
from goodspeed.demo.state import DemoState
from goodspeed.demo.view import View
from goodspeed.errors import ProcessError

START_S = 300.0
"""How long a node may take to get ready: many of them import their libraries at once."""


async def run(config: DemoConfig, clients: list[Client], view: View, log_level: str) -> DemoState:
    """Everything that happened; ProcessError when a node fails. No process is left, however it ends.

    Writes the recording that `--record` asks for at the end.
    """
    state = DemoState.of(clients)
    recorder = Recorder.of(clients)
    listening = True

    def listen(event: Event) -> None:
        if listening:
            state.apply_verify(event)
            recorder.apply_verify(event)

    async with Household(environment(), echo=log_level in ("debug", "info")) as house:
        try:
            async with asyncio.TaskGroup() as tasks:
                view.say(f"starting the verify node with {config.model}")
                verify = await house.start("the verify node", verify_command(config, log_level), listen)
                guard = tasks.create_task(verify.must_go_on())
                drafts = await _start_drafts(config, clients, house, verify, state, log_level, view)
                watching = tasks.create_task(view.watch(config, state))
                state.start(time.monotonic())
                if config.http:
                    await _ask_over_http(config, clients, drafts, state, tasks)
                else:
                    await _give_prompts(clients, drafts)
                guard.cancel()
                watching.cancel()
        except* ProcessError as failed:
            raise failed.exceptions[0] from None
        if config.http:
            listening = False  # what others ask for from now on is not part of this run
            await _stay(verify, view)
        await _end(verify)
    if config.record is not None:
        recording.save(recorder.recording(config), config.record)
    return state


async def _start_drafts(
    config: DemoConfig,
    clients: list[Client],
    house: Household,
    verify: Child,
    state: DemoState,
    log_level: str,
    view: View,
) -> list[Child]:
    """All of them at once, as soon as the verify node has said where it is; returns when all are connected."""
    started = time.monotonic()
    ready = await verify.expect("ready", START_S)
    endpoint = ready["endpoint"]
    view.say(f"the verify node is ready at {endpoint}; starting {len(clients)} draft nodes")
    if config.http:
        view.say(f"the verify node's live page: {ready['url']}")

    def listen(name: str, event: Event) -> None:
        state.apply_draft(name, event, time.monotonic())

    drafts = [
        await house.start(
            client.name,
            draft_command(config, client, endpoint, log_level),
            partial(listen, client.name),
            takes_input=not config.http,
        )
        for client in clients
    ]
    await asyncio.gather(*(draft.expect("connected", START_S) for draft in drafts))
    if config.http:
        for client, draft in zip(clients, drafts, strict=True):
            view.say(f"{client.name} serves the OpenAI API at {(await draft.expect('ready', START_S))['url']}/v1")
    view.say(f"all nodes are ready after {time.monotonic() - started:.1f} s")
    return drafts


async def _give_prompts(clients: list[Client], drafts: list[Child]) -> None:
    """Until all have written their texts, and ended."""
    for client, draft in zip(clients, drafts, strict=True):
        draft.give(prompts.to_json(client.prompt))
    await asyncio.gather(*(draft.succeeded() for draft in drafts))


async def _ask_over_http(
    config: DemoConfig, clients: list[Client], drafts: list[Child], state: DemoState, tasks: asyncio.TaskGroup
) -> None:
    """Until all have written their texts; nobody ends."""

    async def use(client: Client, draft: Child) -> None:
        url = (await draft.expect("ready", START_S))["url"]
        async with aclosing(users.write(config, client, url)) as events:
            async for event in events:
                state.apply_draft(client.name, event, time.monotonic())

    await asyncio.gather(*(tasks.create_task(use(*pair)) for pair in zip(clients, drafts, strict=True)))


async def _stay(verify: Child, view: View) -> None:
    """Until a signal, which is a good end here; ProcessError when the verify node ends before."""
    view.say("all texts are written; the addresses above go on being served until Ctrl-C")
    try:
        await verify.must_go_on()
    except asyncio.CancelledError:
        if task := asyncio.current_task():
            task.uncancel()


async def _end(verify: Child) -> None:
    """Has the verify node tell its sums; if it does not in time, those of its last round stand."""
    verify.signal(signal.SIGTERM)
    await wait_for_ends([verify], GRACE_S)
