"""Prompts of a file: how many at once, what is told, and what becomes of those that nobody serves."""

import asyncio
import os
import re
import threading
from collections import defaultdict
from collections.abc import AsyncGenerator
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace as replace_struct

from draft_node.config import NAME, DraftConfig, default_name
from draft_node.core.actions import Deliver, Fail, Finish
from draft_node.core.counts import Statistics
from draft_node.core.generation import Generation
from draft_node.core.request_queue import RequestQueue
from draft_node.service import async_tokenizer
from draft_node.service.prompt_batch import PromptBatch
from goodspeed.engine.base import Checkpoint
from goodspeed.engine.tokenizing.text import encode_prompt
from goodspeed.engine.torch import checkpoints
from goodspeed.serving.events import EventLog
from goodspeed.serving.prompts import Prompt
from goodspeed.wire.handshake import Defaults
from tests.fakes import make_welcome

EOS_IDS = (7, 11)


@cache
def draft_model() -> Checkpoint:
    return checkpoints.load("tiny-draft-s")


class FakeDaemon:
    """Connected; answers every prompt with its own tokens, `at_once` of them together."""

    def __init__(self, at_once: int = 1) -> None:
        self.connected = asyncio.Event()
        self.link: Any = SimpleNamespace(welcome=None, connected=False)
        self.drafting = None
        self.core: Any = SimpleNamespace(queue=RequestQueue(), connect_timeout_s=60.0, away_s=lambda _: 0.0)
        self.core.sessions = defaultdict(lambda: SimpleNamespace(statistics=Statistics(), target="one", promised=None))
        self.served: list[Generation] = []
        self.num_active = self.most_active = 0
        self._barrier = asyncio.Barrier(at_once)

    def connect(self) -> "FakeDaemon":
        terms = {"vocab_size": 4096, "target_fingerprint": "one", "eos_ids": EOS_IDS, "context_len": 2048}
        self.link.welcome, self.link.connected = make_welcome(**terms), True
        self.connected.set()
        return self

    async def generate(self, request: Generation) -> AsyncGenerator[Deliver | Finish | Fail, None]:
        self.served.append(request)
        self.num_active += 1
        self.most_active = max(self.most_active, self.num_active)
        try:
            await self._barrier.wait()
            yield Deliver(request.prompt)
            yield Finish("length")
        finally:
            self.num_active -= 1


def make_batch(daemon: FakeDaemon, asked: list[Prompt], **options: Any) -> PromptBatch:
    config = DraftConfig(model="tiny-draft-s", **options)
    return PromptBatch(config, draft_model(), daemon, EventLog(enabled=False), asked)  # type: ignore[arg-type]


def run(batch: PromptBatch) -> dict[int, dict[str, Any]]:
    """Returns what came of each prompt, by its index."""
    asyncio.run(asyncio.wait_for(batch.run(), timeout=30))
    assert not batch.unfinished
    return {row["index"]: row for row in batch.results}


def test_how_long_a_prompts_text_may_be_and_how_it_is_sampled() -> None:
    options: list[dict[str, Any]] = [{}, {"max_tokens": 4, "sampling": "temperature=0.3,top_k=9"}]
    daemons = [FakeDaemon().connect() for _ in options]
    for daemon, each in zip(daemons, options, strict=True):
        run(make_batch(daemon, [Prompt(" The river runs")], **each))
    [[short], [as_told]] = [daemon.served for daemon in daemons]
    assert (short.max_tokens, as_told.max_tokens) == (150, 4)
    assert (as_told.sampling.temperature, as_told.sampling.top_k) == (0.3, 9)


async def test_the_target_says_where_a_text_ends() -> None:
    daemon = FakeDaemon()
    batch = make_batch(daemon, [Prompt("The river")])
    assert draft_model().eos_ids != EOS_IDS
    asking = asyncio.create_task(batch.run())
    await asyncio.sleep(0.01)
    assert not daemon.served
    daemon.connect()
    await asking
    assert [request.stop_ids for request in daemon.served] == [EOS_IDS]


def test_a_wrong_prompt_fails_at_once_and_alone(capsys: pytest.CaptureFixture[str]) -> None:
    batch = make_batch(FakeDaemon().connect(), [Prompt("one"), Prompt("\ud800"), Prompt("three")])
    rows = run(batch)
    assert [rows[0]["text"], rows[2]["text"]] == ["one", "three"]
    assert rows[1]["error"]["code"] == "prompt"
    assert batch.num_failed == 1
    assert capsys.readouterr().err.startswith("prompt 2 failed: ")


def test_a_file_is_encoded_as_it_is_served_and_never_on_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    daemon = FakeDaemon(at_once=2).connect()
    batch = make_batch(daemon, [Prompt(f"number {i}") for i in range(12)], max_sessions=2)
    ahead, num_encoded = [], 0

    def watched(tokenizer: Any, text: str) -> list[int]:
        nonlocal num_encoded
        assert threading.current_thread() is not threading.main_thread()
        num_encoded += 1
        ahead.append(num_encoded - len(batch.results))
        return encode_prompt(tokenizer, text)

    monkeypatch.setattr(async_tokenizer, "encode_prompt", watched)
    assert len(run(batch)) == 12
    assert max(ahead) == 2
    assert daemon.most_active == 2


async def test_who_leaves_closes_what_is_generated_and_tells_what_is_unfinished() -> None:
    daemon = FakeDaemon(at_once=9).connect()  # so many never come: all wait
    batch = make_batch(daemon, [Prompt("one"), Prompt("two"), Prompt("three")], max_sessions=2)
    running = asyncio.create_task(batch.run())
    while daemon.num_active < 2:
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert daemon.num_active == 0
    unfinished = {0: "one", 1: "two", 2: "three"}
    assert batch.unfinished == unfinished
    error = {"code": "interrupted", "what": "told to stop"}
    for code, what in (("interrupted", "told to stop"), ("closed", "nothing is left to say")):
        batch.give_up(code, what)
        assert batch.results == [{"index": i, "prompt": text, "error": error} for i, text in unfinished.items()]
    assert batch.num_failed == 3


@pytest.mark.parametrize("host", ["edge-1.example", "Ana's laptop", "", "x" * 200])
def test_a_node_without_a_name_has_one_of_its_own(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: host)
    names = set()
    for pid in (1, 4194304):
        monkeypatch.setattr(os, "getpid", lambda pid=pid: pid)
        names.add(default_name())
    assert len(names) == 2
    assert all(re.fullmatch(NAME, name) for name in names)


@pytest.mark.parametrize(("num_written", "is_begun_anew"), [(0, True), (1, False)])
def test_a_text_is_asked_for_anew_under_the_next_target_while_nothing_of_it_is_written(num_written, is_begun_anew):
    class Retargeted(FakeDaemon):
        async def generate(self, request):
            self.served.append(request)
            if request.target == "one":
                other = {"target_fingerprint": "two", "defaults": Defaults(temperature=0.5)}
                self.link.welcome = replace_struct(self.link.welcome, **other)
                if num_written:
                    yield Deliver(request.prompt[:num_written])
                yield Fail("target_changed", "another target")
            else:
                yield Deliver(request.prompt)
                yield Finish("length")

    daemon = Retargeted().connect()
    row = run(make_batch(daemon, [Prompt("The river runs on")]))[0]
    if not is_begun_anew:
        assert row["error"] == {"code": "target_changed", "what": "another target"}
        return
    first, second = daemon.served
    assert row["text"] == "The river runs on"
    assert (first.target, second.target) == ("one", "two")
    assert second.sampling == replace_struct(first.sampling, temperature=0.5)  # the same seed
    assert first.session_id != second.session_id
