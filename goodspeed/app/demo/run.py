"""Runs the demo once: starts the nodes, sends all prompts at once, and collects events until all texts are done."""

import asyncio
import signal
import time
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from goodspeed.app.demo import users
from goodspeed.app.demo.nodes import START_S, start_drafts, start_verify, wait_for_verify, waiting
from goodspeed.app.demo.options import Client, DemoConfig
from goodspeed.app.demo.processes import GRACE_S, Child, Event, Processes, environment, wait_for_ends
from goodspeed.app.demo.state import DemoState
from goodspeed.app.demo.summary import versions
from goodspeed.app.demo.view import REFRESH_S, REPORT_S, View
from goodspeed.errors import ProcessError
from goodspeed.serving import prompts, recording
from goodspeed.serving.recording import VERSION, AnyLine, Header, Opened, Recording, Round

ALL_TOLD = ("debug", "info")
"""Log levels at which the nodes' logs are passed on immediately."""


@dataclass
class DemoRecorder:
    """Collects a run's sessions and rounds for its recording."""

    domains: dict[str, str]  # by client name
    sessions: list[Opened] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)

    @classmethod
    def of(cls, clients: list[Client]) -> "DemoRecorder":
        return cls({client.name: client.domain for client in clients})

    def apply_verify(self, event: dict[str, Any]) -> None:
        """Applies an event of the verify node. ProcessError if events were dropped."""
        if event["event"] == "dropped":
            raise ProcessError("this demo read the verify node's events too slowly, so that the recording has gaps")
        if event["event"] != "recorded":
            return
        line: AnyLine = msgspec.convert(event["line"], AnyLine)
        if isinstance(line, Opened):
            self.sessions.append(msgspec.structs.replace(line, domain=self.domains[line.client]))
        else:
            self.rounds.append(line)

    def recording(self, config: DemoConfig) -> Recording:
        """Returns the recording of all events so far."""
        shared = {name: getattr(config, name) for name in Header.__struct_fields__ if hasattr(config, name)}
        header = Header(version=VERSION, versions=versions(), **shared | {"model": config.model_name})
        return Recording(header, tuple(self.sessions), tuple(self.rounds))


async def run(
    config: DemoConfig, clients: list[Client], view: View, log_level: str, *, compares: bool = False
) -> DemoState:
    """Runs the demo; returns its state. ProcessError if a node fails. All processes have ended at return or error.

    compares: the target then writes the same texts alone. With `--record`, writes the recording at the end.
    """
    state = DemoState.of(clients)
    recorder = DemoRecorder.of(clients)

    def listen(event: Event) -> None:
        state.apply_verify(event)
        if not state.is_over:
            recorder.apply_verify(event)

    def listen_to_draft(name: str, event: Event) -> None:
        (state.alone if state.alone and event.get("index") else state).apply_draft(name, event, time.monotonic())

    started = time.monotonic()
    async with Processes(environment(), echo=log_level in ALL_TOLD) as processes:
        try:
            async with asyncio.TaskGroup() as tasks:
                verify = await start_verify(config, processes, listen, log_level, view)
                guard = tasks.create_task(verify.must_go_on())
                endpoint = await wait_for_verify(config, verify, view)
                drafts = await start_drafts(config, clients, endpoint, processes, listen_to_draft, log_level, view)
                view.say(f"all nodes are ready after {time.monotonic() - started:.1f} s")
                watching = tasks.create_task(view.watch(config, state))
                state.start(time.monotonic())
                if config.http:
                    await _ask_over_http(config, clients, drafts, state, tasks)
                else:
                    are_done = await _give_prompts(clients, drafts)
                    watching.cancel()
                    if compares and are_done:
                        await _write_alone(clients, drafts, state, view)
                    await _end_drafts(drafts)
                guard.cancel()
                watching.cancel()
        except* ProcessError as failed:
            raise _explained(failed.exceptions[0], log_level, view) from None
        if config.http:
            state.is_over = True
            await _stay(verify, view)
        await _end(verify)
    if config.record is not None:
        recording.save(recorder.recording(config), config.record)
    return state


def _explained(error: BaseException, log_level: str, view: View) -> ProcessError:
    """Returns the error with advice; first prints the node's output in the error's notes."""
    for note in getattr(error, "__notes__", ()):
        view.say(note)
    advice = "" if log_level in ALL_TOLD else ". To see all that the nodes say, add --log-level info"
    return ProcessError(f"{error}{advice}")


async def _give_prompts(clients: list[Client], drafts: list[Child]) -> bool:
    """Writes the prompts to the draft nodes' standard input, and waits for all texts; True if none has failed."""
    for client, draft in zip(clients, drafts, strict=True):
        draft.give(prompts.to_json(client.prompt))
    ends = await asyncio.gather(*(draft.expect("finish", or_kind="fail") for draft in drafts))
    return all(end["event"] == "finish" for end in ends)


async def _all_reported(state: DemoState) -> None:
    """Waits for the verify node's report of the last round, which comes after its verdicts; REPORT_S at most."""
    give_up_at = time.monotonic() + REPORT_S
    while state.num_reported < state.num_tokens and time.monotonic() < give_up_at:
        await asyncio.sleep(REFRESH_S)


async def _write_alone(clients: list[Client], drafts: list[Child], state: DemoState, view: View) -> None:
    """Has the target write the same texts without drafts, all at once again; the run before is over."""
    await _all_reported(state)
    state.is_over = True
    state.alone = DemoState.of(clients)
    async with waiting(view, lambda: "the target writes the same texts alone, to compare", lambda: ""):
        state.alone.start(time.monotonic())
        for client, draft in zip(clients, drafts, strict=True):
            draft.give(prompts.to_json(replace(client.prompt, drafter="none")))
        await _end_drafts(drafts)  # inside, so that the step is shown until the texts are done


async def _end_drafts(drafts: list[Child]) -> None:
    """Waits until the draft nodes have ended; ProcessError if a text has failed."""
    for draft in drafts:
        draft.end_input()
    await asyncio.gather(*(draft.succeeded() for draft in drafts))


async def _ask_over_http(
    config: DemoConfig, clients: list[Client], drafts: list[Child], state: DemoState, tasks: asyncio.TaskGroup
) -> None:
    """Sends the prompts over HTTP; waits until all texts are done. The draft nodes continue to run."""

    async def use(client: Client, draft: Child) -> None:
        url = (await draft.expect("ready", START_S))["url"]
        async with aclosing(users.write(config, client, url)) as events:
            async for event in events:
                state.apply_draft(client.name, event, time.monotonic())

    await asyncio.gather(*(tasks.create_task(use(*pair)) for pair in zip(clients, drafts, strict=True)))


async def _stay(verify: Child, view: View) -> None:
    """Waits for a signal, the normal end; ProcessError if the verify node ends first."""
    url = (await verify.expect("ready", START_S))["url"]
    view.say(f"all texts are written; the window at {url} and the addresses above are served until Ctrl-C")
    try:
        await verify.must_go_on()
    except asyncio.CancelledError:
        if task := asyncio.current_task():
            task.uncancel()


async def _end(verify: Child) -> None:
    """Ends the verify node, which prints its totals. After GRACE_S the totals of its latest round stay."""
    verify.signal(signal.SIGTERM)
    await wait_for_ends([verify], GRACE_S)
