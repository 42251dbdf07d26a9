"""Runs the demo: starts the nodes and asks all questions at once over HTTP, with drafts and without, in turn."""

import asyncio
import json
import os
import sys
import time
import webbrowser
from collections.abc import Callable
from typing import Any

from httpx2 import AsyncClient, HTTPError

from goodspeed.app.demo.answers import ORDER, WITH_DRAFTS, Answer, Run, Way
from goodspeed.app.demo.nodes import Nodes, start
from goodspeed.app.demo.options import Client, DemoConfig
from goodspeed.app.demo.processes import Child, Processes, environment
from goodspeed.app.demo.view import View
from goodspeed.errors import ProcessError
from goodspeed.serving.running import first_of

ALL_TOLD = ("debug", "info")
"""Log levels at which the nodes' logs are passed on immediately."""


async def run(
    config: DemoConfig, clients: list[Client], view: View, log_level: str, tell: Callable[[list[Run]], None]
) -> None:
    """Runs the demo; ProcessError if a node or an answer fails. All processes have ended at return or error.

    tell: called with the finished runs; with --http the nodes serve on after that, until a signal.
    """
    guards: list[asyncio.Task[None]] = []
    async with Processes(environment(), echo=log_level in ALL_TOLD) as processes:
        try:
            async with asyncio.TaskGroup() as tasks:

                def guard(child: Child) -> None:
                    guards.append(tasks.create_task(child.must_go_on()))

                nodes = await start(config, processes, guard, log_level, view)
                runs = [await _ask_all(config, clients, nodes.urls, number, view) for number in range(len(ORDER))]
                for each in guards:
                    each.cancel()
        except* ProcessError as failed:
            raise _explained(first_of(failed), log_level, view) from None
        tell(runs)
        if config.http:
            await _stay(nodes, view)


def _explained(error: BaseException, log_level: str, view: View) -> ProcessError:
    """Returns the error with advice; first prints the node's output in the error's notes."""
    for note in getattr(error, "__notes__", ()):
        view.say(note)
    advice = "" if log_level in ALL_TOLD else ". To see all that the nodes say, add --log-level info"
    return ProcessError(f"{error}{advice}")


async def _ask_all(config: DemoConfig, clients: list[Client], urls: list[str], number: int, view: View) -> Run:
    """Asks all questions at once, and shows the answers as they come. number: of the run in ORDER."""
    run = Run(ORDER[number], [Answer(client) for client in clients])
    watching = asyncio.create_task(view.watch(f"run {number + 1} of {len(ORDER)}, {run.way}", run.answers))
    started = time.monotonic()
    try:
        async with AsyncClient(timeout=None, trust_env=False) as http, asyncio.TaskGroup() as asking:
            for answer in run.answers:
                url = urls[answer.client.draft_node]
                asking.create_task(_ask(http, url, answer, _request(config, answer.client, run.way)))
    finally:
        watching.cancel()
        await asyncio.wait([watching])
    run.elapsed_s = time.monotonic() - started
    return run


def _request(config: DemoConfig, client: Client, way: Way) -> dict[str, Any]:
    """Returns a chat request. Nothing of it is cached, so that each run prefills its questions anew."""
    own = {"prefix_cache": False} if way == WITH_DRAFTS else {"prefix_cache": False, "drafter": "none"}
    return {
        "messages": [{"role": "user", "content": client.prompt.text}],
        "seed": client.prompt.seed,
        "max_tokens": config.max_tokens,
        "temperature": config.temperature,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
        "goodspeed": own,
    }


async def _ask(http: AsyncClient, url: str, answer: Answer, request: dict[str, Any]) -> None:
    """Fills the answer with what the draft node streams; ProcessError if it breaks off."""
    started = time.monotonic()
    try:
        async with http.stream("POST", f"{url}/v1/chat/completions", json=request) as response:
            if response.status_code != 200:
                refusal = (await response.aread()).decode(errors="replace")
                raise ProcessError(f"{url} refused a question: {response.status_code} {refusal}")
            async for line in response.aiter_lines():
                if line.startswith("data: {"):  # others are blank, comments, or the end
                    _take(answer, json.loads(line.removeprefix("data: ")), time.monotonic() - started)
    except HTTPError as error:
        raise ProcessError(f"{url} broke off an answer: {error!r}") from error
    if not answer.counts:
        raise ProcessError(f"{url} did not finish an answer; run with --log-level info to see why")


def _take(answer: Answer, chunk: dict[str, Any], elapsed_s: float) -> None:
    """Adds a chunk of a stream to the answer."""
    if "error" in chunk:
        raise ProcessError(f"a draft node broke off an answer: {chunk['error']['message']}")
    for choice in chunk["choices"]:
        answer.text += choice["delta"].get("content") or ""
        answer.token_ids += choice.get("token_ids") or []
        answer.finish_reason = choice["finish_reason"] or answer.finish_reason
        answer.elapsed_s = elapsed_s
    if usage := chunk.get("usage"):
        answer.counts = usage["goodspeed"]


async def _stay(nodes: Nodes, view: View) -> None:
    """Opens the pages where there is a screen, and waits for a signal, the normal end; ProcessError if the verify node
    ends first."""
    view.say(f"the verify node's page is at {nodes.page}; chat with draft nodes at {', '.join(nodes.urls)}")
    view.say("they serve until Ctrl-C")
    if sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        for url in (nodes.page, nodes.urls[0]):
            webbrowser.open(str(url))
    try:
        await nodes.verify.must_go_on()
    except asyncio.CancelledError:
        if task := asyncio.current_task():
            task.uncancel()
