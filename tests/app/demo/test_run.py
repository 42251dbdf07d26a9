"""A demo asks its draft nodes, shows their answers, says what fails. The nodes here are a stub, or tiny programs."""

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any

import pytest
from httpx2 import AsyncClient

from goodspeed.app.demo import nodes
from goodspeed.app.demo.answers import ALONE, ORDER, WITH_DRAFTS, Answer, Run
from goodspeed.app.demo.options import DemoConfig, clients
from goodspeed.app.demo.run import _ask, _request, run
from goodspeed.app.demo.view import View
from goodspeed.errors import ProcessError
from tests.app.demo.stub import LAST, Stub, chunk, event, serving

pytestmark = pytest.mark.nodes

CONFIG = DemoConfig(clients=2, draft_models="one,two", max_tokens=7, temperature=0.5)


class Listener(View):
    """Keeps what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


def ask(stub: Stub) -> Answer:
    (client, _), answer = clients(CONFIG), Answer(clients(CONFIG)[0])

    async def work() -> None:
        async with AsyncClient(trust_env=False) as http:
            await _ask(http, stub.url, answer, _request(CONFIG, client, WITH_DRAFTS))

    asyncio.run(work())
    return answer


def test_an_answer_is_joined_from_its_chunks() -> None:
    with serving() as stub:
        stub.body = chunk("Hel", token_ids=[1, 2]) + b": waiting\n\n" + chunk("lo", "stop", token_ids=[3]) + LAST
        answer = ask(stub)
    assert (answer.text, answer.token_ids, answer.finish_reason) == ("Hello", [1, 2, 3], "stop")
    assert answer.counts["rounds"] == 2
    assert answer.tokens_per_s > 0
    (asked,) = stub.asked
    assert (asked["max_tokens"], asked["temperature"], asked["seed"]) == (7, 0.5, 0)
    assert asked["messages"] == [{"role": "user", "content": answer.client.prompt.text}]


def test_both_ways_ask_the_same_but_for_drafts_and_have_nothing_cached() -> None:
    (client, _) = clients(CONFIG)
    with_drafts, alone = (_request(CONFIG, client, way) for way in (WITH_DRAFTS, ALONE))
    assert with_drafts.pop("goodspeed") == {"prefix_cache": False}
    assert alone.pop("goodspeed") == {"prefix_cache": False, "drafter": "none"}
    assert with_drafts == alone


def test_a_refusal_and_a_broken_answer_are_told() -> None:
    with serving() as stub:
        stub.body = chunk("Hel") + event({"error": {"message": "out of memory"}})
        with pytest.raises(ProcessError, match="broke off an answer: out of memory"):
            ask(stub)
        stub.body = chunk("Hel")
        with pytest.raises(ProcessError, match="did not finish an answer"):
            ask(stub)
        stub.refuse(400, "this model cannot chat")
        with pytest.raises(ProcessError, match=r"refused a question: 400 .*this model cannot chat"):
            ask(stub)
    with pytest.raises(ProcessError, match="broke off an answer: ConnectError"):
        ask(stub)


Commands = Callable[..., None]


def program(*lines: str) -> list[str]:
    return [sys.executable, "-c", "\n".join(["import os, sys, time", *lines])]


def tells(**told: Any) -> str:
    return f"print({json.dumps(told)!r}, flush=True)"


READY = tells(event="ready", endpoint="tcp://127.0.0.1:1", url=None)


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> Commands:
    """Sets the programs of the verify node and of the draft nodes."""

    def use(verify: list[str], *drafts: list[str]) -> None:
        left = list(drafts)
        monkeypatch.setattr(nodes, "verify_command", lambda config, log_level: verify)
        monkeypatch.setattr(nodes, "draft_command", lambda *_: left.pop(0))

    return use


def failure(view: Listener, log_level: str = "warning") -> str:
    with pytest.raises(ProcessError) as told:
        asyncio.run(run(CONFIG, clients(CONFIG), view, log_level, lambda runs: None))
    return str(told.value)


def test_each_client_asks_its_draft_node_in_every_run(commands: Commands) -> None:
    serves = program(READY, "time.sleep(600)")
    with serving() as first, serving() as second:
        drafts = [
            program(tells(event="ready", url=stub.url), tells(event="connected"), "time.sleep(600)")
            for stub in (first, second)
        ]
        commands(serves, *drafts)
        view, told = Listener(), list[list[Run]]()
        asyncio.run(run(CONFIG, clients(CONFIG), view, "warning", told.append))
    assert [each.way for each in told[0]] == list(ORDER)
    for stub, client in zip((first, second), clients(CONFIG), strict=True):
        assert {asked["messages"][0]["content"] for asked in stub.asked} == {client.prompt.text}
        assert [asked["goodspeed"].get("drafter") for asked in stub.asked] == [None, "none", "none", None]
    assert view.said[:2] == ["starting the verify node with smollm2", "starting 2 draft nodes with one, two"]
    assert view.said[2].startswith("all nodes are ready after ")


def test_a_draft_node_that_does_not_start_is_named_with_its_last_word_and_what_to_do(commands: Commands) -> None:
    waits = program("time.sleep(600)")
    commands(program(READY, "time.sleep(600)"), waits, program("sys.stderr.write('loading\\n')", "sys.exit('no x')"))
    view = Listener()
    assert failure(view) == ("draft-2 ended with status 1: no x. To see all that the nodes say, add --log-level info")
    assert view.said[-1] == "draft-2 said:\n  loading"


def test_a_verify_node_that_ends_while_draft_nodes_start_is_named(commands: Commands) -> None:
    commands(program(READY, "time.sleep(0.2)", "os.kill(os.getpid(), 9)"), *[program("time.sleep(600)")] * 2)
    assert failure(Listener()).startswith("the verify node was killed by signal 9, perhaps for want of memory")


def test_who_was_told_everything_gets_no_such_advice(commands: Commands) -> None:
    commands(program("os.kill(os.getpid(), 9)"))
    assert failure(Listener(), "info") == "the verify node was killed by signal 9, perhaps for want of memory"
