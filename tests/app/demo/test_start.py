"""Lines that are shown while nodes start, and when one does not. The nodes here are tiny programs."""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from goodspeed.app.demo import nodes
from goodspeed.app.demo.options import Client, DemoConfig
from goodspeed.app.demo.processes import Processes
from goodspeed.app.demo.run import run, run_all
from goodspeed.app.demo.state import DemoState
from goodspeed.app.demo.view import View
from goodspeed.errors import ProcessError
from goodspeed.serving.prompts import Prompt
from tests.waiting import until

pytestmark = pytest.mark.nodes

READY = {"event": "ready", "endpoint": "tcp://127.0.0.1:1", "url": "http://127.0.0.1:2"}
URL = READY["url"]


class Listener(View):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.num_done = 0

    def say(self, text: str) -> None:
        self.said.append(text)

    def doing(self, text: str, for_s: float = 0.0) -> None:
        self.said.append(f"{text} ..." if for_s else text)

    def done(self) -> None:
        self.num_done += 1

    async def watch(self, config: DemoConfig, state: DemoState) -> None:
        raise AssertionError("nothing is to be seen yet")


def program(*lines: str) -> list[str]:
    return [sys.executable, "-c", "\n".join(["import json, os, pathlib, sys, time", *lines])]


def event(told: dict[str, Any]) -> str:
    return f"print({json.dumps(told)!r}, flush=True)"


def clients(number: int) -> list[Client]:
    return [Client(f"client-{i + 1}", "small", Prompt("once", "", 1)) for i in range(number)]


def waits_for(file: Path) -> str:
    return f"while not pathlib.Path({str(file)!r}).exists(): time.sleep(0.01)"


def test_how_many_draft_nodes_are_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They become ready when this test says so, one after the other."""

    def command(config: DemoConfig, client: Client, endpoint: str, log_level: str) -> list[str]:
        return program(waits_for(tmp_path / client.name), event({"event": "connected"}), "sys.stdin.read()")

    monkeypatch.setattr(nodes, "draft_command", command)
    monkeypatch.setattr(nodes, "REPEAT_S", 0.02)
    view = Listener()

    async def work() -> None:
        async with Processes(dict(os.environ)) as processes:
            starting = asyncio.create_task(
                nodes.start_drafts(
                    DemoConfig(), clients(6), "tcp://here", processes, lambda name, told: None, "warning", view
                )
            )
            await until(lambda: "0 of 6 draft nodes are ready; the others are loading" in "\n".join(view.said))
            for number in (2, 1, 3):
                (tmp_path / f"client-{number}").touch()
            await until(lambda: any(line.startswith("3 of 6") and line.endswith("...") for line in view.said))
            for number in (4, 5, 6):
                (tmp_path / f"client-{number}").touch()
            assert [child.name for child in await starting] == [client.name for client in clients(6)]

    asyncio.run(work())
    counted = [line for line in view.said if line.endswith("ready")]
    assert counted == [f"{number} of 6 draft nodes are ready" for number in range(7)]
    assert "3 of 6 draft nodes are ready; waiting for client-4, client-5, client-6 ..." in view.said
    assert view.num_done == 1


def verify(
    monkeypatch: pytest.MonkeyPatch, view: Listener, *lines: str, config: DemoConfig | None = None, seen: str = ""
) -> None:
    """Waits for a verify node that does that; for the line `seen` of its repeated news, first."""
    monkeypatch.setattr(nodes, "verify_command", lambda config, log_level: program(*lines))
    config = config or DemoConfig(clients=1)

    async def work() -> None:
        async with Processes(dict(os.environ)) as processes:
            node = await nodes.start_verify(config, processes, lambda told: None, "warning", view)
            assert await nodes.wait_for_verify(config, node, view) == READY["endpoint"]

    asyncio.run(work())


def test_what_the_verify_node_does_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "REPEAT_S", 0.02)
    file = tmp_path / "go on"

    class Impatient(Listener):
        def doing(self, text: str, for_s: float = 0.0) -> None:
            super().doing(text, for_s)
            if "measuring" in text:
                file.touch()

    view = Impatient()
    verify(monkeypatch, view, "print('measuring', file=sys.stderr, flush=True)", waits_for(file), event(READY))
    assert view.said[0].startswith("starting one verify node and 1 draft node; ")
    assert view.said[1] == "the verify node is loading tiny-target"
    assert "the verify node is loading tiny-target; it said last: measuring ..." in view.said
    assert view.said[-1] == "the verify node is ready at tcp://127.0.0.1:1; starting 1 draft node"


def test_the_page_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    view = Listener()
    verify(monkeypatch, view, event(READY), config=DemoConfig(http=True))
    assert view.said[-1] == f"the page is at {URL}"


def test_a_comparison_says_how_long_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(config: DemoConfig, *_: object) -> DemoState:
        return DemoState.of(clients(1))

    monkeypatch.setattr("goodspeed.app.demo.run.run", at_once)
    view = Listener()
    states = asyncio.run(run_all(DemoConfig(), clients(1), view, "warning"))
    assert list(states) == ["gradient", "fixed", "random", "paper"]
    assert view.said == [
        "run 1 of 4: gradient (about 4 min left)",
        "run 2 of 4: fixed (about 1 min left)",
        "run 3 of 4: random (about 1 min left)",
        "run 4 of 4: paper (about 1 min left)",
        "all 4 runs took 0 s",
    ]


def failure(view: Listener, log_level: str = "warning") -> str:
    with pytest.raises(ProcessError) as told:
        asyncio.run(run(DemoConfig(clients=1), clients(1), view, log_level))
    return str(told.value)


Commands = Callable[[list[str], list[str]], None]


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> Commands:
    """Sets the programs of the verify node and of the draft node."""

    def use(verify: list[str], draft: list[str]) -> None:
        monkeypatch.setattr(nodes, "verify_command", lambda config, log_level: verify)
        monkeypatch.setattr(nodes, "draft_command", lambda config, client, endpoint, log_level: draft)

    return use


def test_a_draft_node_that_does_not_start_is_named_with_its_last_word_and_what_to_do(commands: Commands) -> None:
    serves = program(event(READY), "sys.stdin.read()", "time.sleep(600)")
    commands(serves, program("sys.stderr.write('loading\\n')", "sys.exit('model x is not there; see models')"))
    view = Listener()
    assert failure(view) == (
        "client-1 ended with status 1: model x is not there; see models. "
        "To see all that the nodes say, add --log-level info"
    )
    assert view.said[-1] == "client-1 said:\n  loading"
    assert view.num_done == 2


def test_who_was_told_everything_gets_no_such_advice(commands: Commands) -> None:
    commands(program("os.kill(os.getpid(), 9)"), program())
    assert failure(Listener(), "info") == "the verify node was killed by signal 9, perhaps for want of memory"
