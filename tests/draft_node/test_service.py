"""Texts through a service in front of real nodes of this process, joined by the memory network."""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest

from draft_node import assembly as draft_assembly
from draft_node.config import DraftConfig
from draft_node.daemon import DraftDaemon
from draft_node.service import Ended, Piece, Service, Token, Wanted
from goodspeed.engine.text import decode
from goodspeed.events import EventLog
from goodspeed.latency import Refined
from goodspeed.memory_network import MemoryNetwork
from goodspeed.messages import Sampling
from tests.cluster.cluster import alone, load, prompt_ids
from verify_node import assembly as verify_assembly
from verify_node.config import VerifyConfig
from verify_node.daemon import VerifyDaemon

T = TypeVar("T")
GREEDY = Sampling(temperature=0.0)


@dataclass
class Edge:
    """A service, its daemon, and the verify node behind it."""

    service: Service
    daemon: DraftDaemon
    network: MemoryNetwork
    verify: VerifyDaemon

    async def until(self, condition: Callable[[], object]) -> None:
        """A wait for what must come; `run` bounds it."""
        while not condition():
            await asyncio.sleep(0.001)

    async def until_free(self) -> None:
        """Until no session is left at either node."""
        await self.until(lambda: not self.verify.core.sessions and not self.daemon.num_running)


def build_verify(network: MemoryNetwork) -> VerifyDaemon:
    config = VerifyConfig(model="tiny-target", cost="none", kv_pages=256)
    target = load("tiny-target")
    runner = verify_assembly.make_runner(config, target)
    welcome = verify_assembly.make_welcome(config, target)
    return verify_assembly.build(config, runner, network.bind_verify(), welcome, EventLog(enabled=False), Refined())


@asynccontextmanager
async def edge(*, max_waiting: int = 8, connected: bool = True, **options: Any) -> AsyncGenerator[Edge, None]:
    """Both nodes serving; the draft node stays when the verify node is away."""
    network, boot_id = MemoryNetwork(), secrets.token_bytes(8)
    verify = build_verify(network)
    config = DraftConfig(model="tiny-draft-s", name="edge", kv_pages=256, **options)
    draft = load("tiny-draft-s")
    daemon = draft_assembly.build(config, draft, network.connect_draft(boot_id), boot_id)
    daemon.stays = True
    serving = [asyncio.create_task(daemon.serve())]
    if connected:
        serving.append(asyncio.create_task(verify.serve()))
        await daemon.connected.wait()
    try:
        yield Edge(Service(daemon, draft, max_waiting=max_waiting), daemon, network, verify)
    finally:
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, timeout=60))  # a wait in vain


def wanted(index: int = 0, max_tokens: int = 24, sampling: Sampling = GREEDY, **options: Any) -> Wanted:
    return Wanted(prompt=prompt_ids(index), sampling=sampling, max_tokens=max_tokens, **options)


@dataclass
class Written:
    """What a user got."""

    text: str
    tokens: tuple[Token, ...]
    ended: Ended

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(token.id for token in self.tokens)


async def write(service: Service, what: Wanted) -> Written:
    async with aclosing(service.write(what)) as items:
        *pieces, ended = [item async for item in items]
    assert isinstance(ended, Ended)
    assert all(isinstance(piece, Piece) for piece in pieces)
    text = "".join(piece.text for piece in pieces)
    return Written(text, tuple(token for piece in pieces for token in piece.tokens), ended)


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(seed=5), Sampling(temperature=0.7, top_k=20, seed=6)])
def test_a_text_is_what_the_target_writes_alone(sampling: Sampling) -> None:
    async def work() -> Written:
        async with edge() as here:
            return await write(here.service, wanted(sampling=sampling))

    written, expected = run(work()), alone(prompt_ids(0), sampling, 24)
    assert written.ids == expected
    assert written.text == decode(load("tiny-target").tokenizer, expected)
    assert b"".join(token.raw for token in written.tokens).decode() == written.text
    assert written.ended.num_tokens == len(expected)
