"""One run: start the nodes, wait until all are ready, give everybody a prompt at the same moment, listen to the end."""

import asyncio
import signal
import time
from functools import partial

from goodspeed import prompts, recording
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

    def listen(event: Event) -> None:
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
                await _give_prompts(clients, drafts, state)
                await asyncio.gather(*(draft.succeeded() for draft in drafts))
                guard.cancel()
                watching.cancel()
        except* ProcessError as failed:
            raise failed.exceptions[0] from None
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
    endpoint = (await verify.expect("ready", START_S))["endpoint"]
    view.say(f"the verify node is ready at {endpoint}; starting {len(clients)} draft nodes")

    def listen(name: str, event: Event) -> None:
        state.apply_draft(name, event, time.monotonic())

    drafts = [
        await house.start(
            client.name,
            draft_command(config, client, endpoint, log_level),
            partial(listen, client.name),
            takes_input=True,
        )
        for client in clients
    ]
    await asyncio.gather(*(draft.expect("connected", START_S) for draft in drafts))
    view.say(f"all nodes are ready after {time.monotonic() - started:.1f} s")
    return drafts


async def _give_prompts(clients: list[Client], drafts: list[Child], state: DemoState) -> None:
    state.start(time.monotonic())
    for client, draft in zip(clients, drafts, strict=True):
        draft.give(prompts.to_json(client.prompt))


async def _end(verify: Child) -> None:
    """Has the verify node tell its sums; if it does not in time, those of its last round stand."""
    verify.signal(signal.SIGTERM)
    await wait_for_ends([verify], GRACE_S)
