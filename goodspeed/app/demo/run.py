"""Runs the demo: starts the nodes, sends all prompts at once, and collects events until all texts are done."""

import asyncio
import json
import signal
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from httpx2 import AsyncClient, HTTPError

from goodspeed.app.demo.nodes import START_S, start_drafts, start_verify, wait_for_verify, waiting
from goodspeed.app.demo.options import Client, DemoConfig
from goodspeed.app.demo.processes import GRACE_S, Child, Event, Processes, environment, wait_for_ends
from goodspeed.app.demo.state import DemoState
from goodspeed.app.demo.summary import ways
from goodspeed.app.demo.view import REFRESH_S, REPORT_S, View
from goodspeed.errors import ProcessError
from goodspeed.serving import prompts
from goodspeed.serving.measuring import recording

ALL_TOLD = ("debug", "info")
"""Log levels at which the nodes' logs are passed on immediately."""

RUN_S = 60.0
"""About the time of one run by default, on two slow cores."""


async def run_all(config: DemoConfig, clients: list[Client], view: View, log_level: str) -> dict[str, DemoState]:
    """Runs the demo once per configuration of `ways`, with new processes each time."""
    states: dict[str, DemoState] = {}
    compared, started, run_s = ways(config), time.monotonic(), RUN_S
    for number, (name, way) in enumerate(compared.items()):
        left = f"about {max(1, round((len(compared) - number) * run_s / 60))} min left"
        view.say(f"run {number + 1} of {len(compared)}: {name} ({left})")
        states[name] = await run(way, clients, view, log_level)
        run_s = (time.monotonic() - started) / len(states)
    view.say(f"all {len(compared)} runs took {time.monotonic() - started:.0f} s")
    return states


async def run(
    config: DemoConfig, clients: list[Client], view: View, log_level: str, *, compares: bool = False
) -> DemoState:
    """Runs the demo; returns its state. ProcessError if a node fails. All processes have ended at return or error.

    compares: the target then writes the same texts alone. With `--record`, writes the recording at the end.
    """
    state = DemoState.of(clients)

    def listen_to_draft(name: str, event: Event) -> None:
        (state.alone if state.alone and event.get("index") else state).apply_draft(name, event, time.monotonic())

    started = time.monotonic()
    async with Processes(environment(), echo=log_level in ALL_TOLD) as processes:
        try:
            async with asyncio.TaskGroup() as tasks:
                verify = await start_verify(config, processes, state.apply_verify, log_level, view)
                guard = tasks.create_task(verify.must_go_on())
                endpoint = await wait_for_verify(config, verify, view)
                drafts = await start_drafts(config, clients, endpoint, processes, listen_to_draft, log_level, view)
                view.say(f"all nodes are ready after {time.monotonic() - started:.1f} s")
                watching = tasks.create_task(view.watch(config, state))
                state.start(time.monotonic())
                if config.http:
                    pairs = zip(clients, drafts, strict=True)
                    await asyncio.gather(*(tasks.create_task(_ask_over_http(config, *pair, state)) for pair in pairs))
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
        verify.signal(signal.SIGTERM)  # it prints its totals; after GRACE_S those of its latest round stay
        await wait_for_ends([verify], GRACE_S)
    if config.record is not None:
        recording.save(state.recording(config, recording.versions()), config.record)
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


async def _write_alone(clients: list[Client], drafts: list[Child], state: DemoState, view: View) -> None:
    """Has the target write the same texts without drafts, all at once again; the run before is over."""
    give_up_at = time.monotonic() + REPORT_S  # the verify node's report of the last round comes after its verdicts
    while state.num_reported < state.num_tokens and time.monotonic() < give_up_at:
        await asyncio.sleep(REFRESH_S)
    state.is_over = True
    state.alone = DemoState.of(clients)
    async with waiting(view, lambda: "the target writes the same texts alone, to compare"):
        state.alone.start(time.monotonic())
        for client, draft in zip(clients, drafts, strict=True):
            draft.give(prompts.to_json(replace(client.prompt, drafter="none")))
        await _end_drafts(drafts)  # inside, so that the step is shown until the texts are done


async def _end_drafts(drafts: list[Child]) -> None:
    """Waits until the draft nodes have ended; ProcessError if a text has failed."""
    for draft in drafts:
        draft.end_input()
    await asyncio.gather(*(draft.succeeded() for draft in drafts))


async def _stay(verify: Child, view: View) -> None:
    """Waits for a signal, the normal end; ProcessError if the verify node ends first."""
    url = (await verify.expect("ready", START_S))["url"]
    view.say(f"all texts are written; the page at {url} and the addresses above are served until Ctrl-C")
    try:
        await verify.must_go_on()
    except asyncio.CancelledError:
        if task := asyncio.current_task():
            task.uncancel()


# -- over HTTP ---------------------------------------------------------------------------------------------------------


async def _ask_over_http(config: DemoConfig, client: Client, draft: Child, state: DemoState) -> None:
    """Has one draft node write its text over HTTP; the node continues to run. ProcessError if the text breaks off.

    Makes the events that draft nodes print for prompts on standard input. HTTP carries no token ids, and the draft
    sources only at the end.
    """
    url, started = (await draft.expect("ready", START_S))["url"], time.monotonic()
    text = reason = ""
    untold: Event = {"token_ids": [], "drafted": {}, "accepted": {}}
    try:
        async with aclosing(_chunks(url, _request(config, client))) as chunks:
            async for chunk in chunks:
                for choice in chunk["choices"]:
                    reason = choice["finish_reason"] or reason
                    text += choice["text"]
                    event = {"event": "tokens", "text": choice["text"], **untold}
                    state.apply_draft(client.name, event, time.monotonic())
                if usage := chunk.get("usage"):
                    event = {"event": "finish", "text": text, "finish_reason": reason, "token_ids": []}
                    event |= {"elapsed_s": time.monotonic() - started, **_counts(usage)}
                    state.apply_draft(client.name, event, time.monotonic())
                    return
    except HTTPError as error:
        raise ProcessError(f"{client.name} broke off its answer over HTTP: {error!r}") from error
    raise ProcessError(f"{client.name} did not finish its answer over HTTP; run with --log-level info to see why")


def _request(config: DemoConfig, client: Client) -> dict[str, Any]:
    return {
        "prompt": client.prompt.text,
        "seed": client.prompt.seed,
        "max_tokens": config.max_tokens,
        "temperature": config.temperature,
        "stream": True,
        "stream_options": {"include_usage": True},
        **({"goodspeed": {"slo": client.tier}} if client.tier is not None else {}),
    }


async def _chunks(url: str, request: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
    """Yields one completion's chunks. Needs no timeout: the connection breaks if the node ends."""
    async with (
        AsyncClient(timeout=None, trust_env=False) as http,
        http.stream("POST", f"{url}/v1/completions", json=request) as answer,
    ):
        if answer.status_code != 200:
            refusal = (await answer.aread()).decode(errors="replace")
            raise ProcessError(f"{url} refused a text: {answer.status_code} {refusal}")
        async for line in answer.aiter_lines():
            data = line.removeprefix("data: ")
            if data != line and data != "[DONE]":  # other lines are blank, or comments
                chunk = json.loads(data)
                if "error" in chunk:
                    raise ProcessError(f"{url} broke off a text: {chunk['error']['message']}")
                yield chunk


def _counts(usage: dict[str, Any]) -> dict[str, Any]:
    own = usage["goodspeed"]
    counts = {f"num_{name}": own[name] for name in ("rounds", "drafted", "accepted")}
    sources = {"drafted": own["drafted_by"], "accepted": own["accepted_by"]}
    return {"num_tokens": usage["completion_tokens"], **counts, **sources, "slo": own.get("slo")}
