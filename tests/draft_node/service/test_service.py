"""Texts through a service in front of real nodes of this process, joined by the memory network."""

import asyncio
import re
import secrets
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from draft_node.config import DraftConfig
from draft_node.core.generation import Generation
from draft_node.process import assembly as draft_assembly
from draft_node.process.daemon import DraftDaemon
from draft_node.service.output_processor import Begun, Ended, Piece
from draft_node.service.service import Service
from goodspeed.errors import Busy, Draining, RequestRefused, VerifyAway
from goodspeed.fair.refined import Refined
from goodspeed.serving.events import EventLog
from goodspeed.wire.generation import Constraint, Sampling
from tests.memory_network import MemoryNetwork
from tests.together.cluster.cluster import alone, load, prompt_ids
from tests.waiting import until
from verify_node.config import VerifyConfig
from verify_node.process import assembly as verify_assembly
from verify_node.process.daemon import VerifyDaemon

pytestmark = pytest.mark.nodes

ADDRESS = "tcp://10.9.8.7:5555"
GREEDY = Sampling(temperature=0.0)


@dataclass
class Edge:
    """A draft node's service, with its daemon and the verify node behind it."""

    service: Service
    daemon: DraftDaemon
    network: MemoryNetwork
    verify: VerifyDaemon

    async def until_free(self) -> None:
        """Waits until no session and no page of memory is left in use at either node."""
        pools = (self.verify.core.pool, self.daemon.drafter.engine.pool)
        await until(lambda: not self.verify.core.sessions and not self.daemon.core.queue.num_running)
        await until(lambda: all(pool.num_free == pool.num_pages for pool in pools))


def build_verify(network: MemoryNetwork) -> VerifyDaemon:
    config = VerifyConfig(model="tiny-target", kv_pages=256, heartbeat_s=0.1)
    target = load("tiny-target")
    engine = verify_assembly.make_engine(config, target)
    welcome = verify_assembly.make_welcome(config, target)
    return verify_assembly.build(config, engine, network.bind_verify(), welcome, EventLog(enabled=False), Refined())


@asynccontextmanager
async def edge(*, max_waiting: int = 8, connected: bool = True, **options: Any) -> AsyncGenerator[Edge, None]:
    """Has both nodes serve; the draft node stays when the verify node is away."""
    network, boot_id = MemoryNetwork(), secrets.token_bytes(8)
    verify = build_verify(network)
    config = DraftConfig(model="tiny-draft-s", name="edge", **options)
    draft = load("tiny-draft-s")
    daemon = draft_assembly.build(config, draft, network.connect_draft(boot_id), boot_id)
    daemon.core.stays = True
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


def generation(index: int = 0, max_tokens: int = 24, **options: Any) -> Generation:
    of_all: Any = {"prompt": prompt_ids(index), "stop_ids": load("tiny-target").eos_ids, "asked_at": time.monotonic()}
    return Generation(secrets.token_bytes(16), sampling=GREEDY, max_tokens=max_tokens, **of_all | options)


def endless() -> Generation:
    return generation(max_tokens=1000, stop_ids=())


def expected(index: int = 0) -> tuple[int, ...]:
    """Returns the tokens of `generation(index)`."""
    return alone(prompt_ids(index), GREEDY, 24)


async def write(service: Service, what: Generation) -> tuple[int, ...]:
    """Returns the tokens that a user got."""
    async with aclosing(service.write(what)) as items:
        begun, *pieces, ended = [item async for item in items]
    assert isinstance(begun, Begun)
    assert isinstance(ended, Ended)
    assert all(isinstance(piece, Piece) for piece in pieces)
    return tuple(token.id for piece in pieces for token in piece.tokens)


@pytest.mark.essential
async def test_cancelled_at_any_point_nothing_is_lost() -> None:
    """Slots and sessions come back: many users of few slots are cancelled, each after one more step of the loop."""
    async with edge(max_sessions=2, max_waiting=1000) as here:
        users = [asyncio.create_task(write(here.service, generation(i % 4, stop=("e",)))) for i in range(60)]
        for i, user in enumerate(users):
            for _ in range(i % 7):
                await asyncio.sleep(0)
            if i % 5:
                user.cancel()
        done = await asyncio.gather(*users, return_exceptions=True)
        assert {type(one) for one in done} == {tuple, asyncio.CancelledError}
        await here.until_free()
        assert here.daemon.core.queue.num_waiting == 0
        everybody = asyncio.gather(*[write(here.service, generation(i)) for i in range(4)])
        await until(lambda: here.daemon.core.queue.num_running == 2 and here.daemon.core.queue.num_waiting == 2)
        assert await everybody == [expected(i) for i in range(4)]


async def test_cancelled_again_while_the_line_is_busy() -> None:
    """The session is closed as soon as there is room."""
    async with edge(max_sessions=1) as here:
        user = asyncio.create_task(write(here.service, endless()))
        await until(lambda: here.verify.core.sessions)
        here.network.has_room.clear()
        user.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        user.cancel()
        await asyncio.gather(user, return_exceptions=True)
        assert here.verify.core.sessions
        here.network.has_room.set()
        await here.until_free()
        assert (await write(here.service, generation())) == expected()


async def test_a_user_with_many_texts_is_refused_and_another_is_served_next() -> None:
    """A text that is cancelled makes room for one more."""
    async with edge(max_sessions=1, max_waiting=2) as here:
        order: list[str] = []

        async def write_one(name: str) -> None:
            what = generation(max_tokens=8, user=name[0])
            async with aclosing(here.service.write(what)) as pieces:
                order.extend([name async for piece in pieces if isinstance(piece, Ended)])

        def begun(name: str) -> "asyncio.Task[None]":
            return asyncio.create_task(write_one(name))

        queue, (first, second, third) = here.daemon.core.queue, map(begun, ("a1", "a2", "a3"))
        await until(lambda: queue.num_waiting == 2)
        with pytest.raises(Busy, match="1 texts are running and 2 wait, 2 of them your own; at most 2"):
            await write_one("a4")
        second.cancel()
        await until(lambda: queue.num_waiting == 1)
        fifth, other = begun("a5"), begun("b1")
        await until(lambda: queue.num_waiting == 3)
        what = "1 texts are running and 3 wait, 2 of them your own; at most 1 of yours may wait now; ask again later"
        with pytest.raises(Busy, match=f"^{what}$"):
            await write_one("a6")
        await asyncio.gather(first, third, fifth, other)
        assert order == ["a1", "b1", "a3", "a5"]
        assert here.service.stats.failed == {"busy": 2}


async def test_texts_with_a_form_that_come_at_once_wait_no_more_than_others() -> None:
    """Each has its place in the queue before its form is compiled."""
    async with edge(max_sessions=1, max_waiting=2) as here:
        texts = [write(here.service, generation(constraint=Constraint("regex", "[a-z]{3}"))) for _ in range(6)]
        done = await asyncio.gather(*texts, return_exceptions=True)
    assert [type(one) for one in done] == [tuple] * 3 + [Busy] * 3


async def test_without_a_verify_node() -> None:
    async with edge(connected=False) as here:
        assert not here.service.is_ready
        assert here.service.context_len == 0
        longest = max(map(len, load("tiny-draft-s").tokenizer.get_vocab()))
        assert here.service.max_chars == here.daemon.drafter.context_len * longest  # what is known until then
        with pytest.raises(VerifyAway, match=r"\Athe verify node has been away for \d+ s; ask again later\Z"):
            await write(here.service, generation())
        serving = asyncio.create_task(here.verify.serve())
        await here.daemon.connected.wait()
        assert here.service.is_ready
        assert here.service.context_len == load("tiny-target").context_len
        assert (await write(here.service, generation())) == expected()
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        assert here.service.max_chars == load("tiny-target").context_len * longest


@pytest.mark.essential
async def test_the_verify_node_goes_and_comes_back(caplog, monkeypatch):
    """Texts fail that wait for it, running ones and those in the queue; the daemon serves on when it is there.

    Their users are told for how long, and neither where it is nor why it lets nobody in: that is in the log.
    """

    monkeypatch.setattr(draft_assembly, "VERIFY_TIMEOUT_S", 0.1)
    async with edge(max_sessions=1, connect_timeout_s=0.2) as here:
        texts = [asyncio.create_task(write(here.service, endless())) for _ in "ab"]
        await until(lambda: here.daemon.core.queue.num_waiting)
        here.network.fate = lambda packet: ()
        here.daemon.channel.endpoint = ADDRESS
        here.daemon.link.trouble = "its key is another one"  # before the texts can fail: a busy machine is late
        failures = await asyncio.gather(*texts, return_exceptions=True)
        assert [type(failure) for failure in failures] == [VerifyAway, VerifyAway]
        shut_out = r"the verify node has not let this draft node in for \d+ s; ask again later"
        assert all(re.fullmatch(shut_out, str(failure)) for failure in failures)
        assert (told := [vars(record)["why"] for record in caplog.records if "ending the texts" in record.message])
        assert all(ADDRESS in why and "its key is another one" in why for why in told)
        here.network.fate = lambda packet: (packet,)
        await here.daemon.connected.wait()
        assert (await write(here.service, generation())) == expected()


async def test_a_text_that_is_asked_for_while_a_broken_connection_is_mended_waits(monkeypatch):
    async with edge() as here:
        breaks = [True]
        monkeypatch.setattr(here.daemon.channel.transport, "broke", lambda: bool(breaks) and breaks.pop())
        here.network.fate = lambda packet: ()
        await until(lambda: not here.daemon.link.connected)
        assert not here.service.is_ready
        assert here.service.context_len == load("tiny-target").context_len
        asked = asyncio.create_task(write(here.service, generation()))
        await until(lambda: here.daemon.core.queue.num_running)
        here.network.fate = lambda packet: (packet,)
        assert await asked == expected()


async def test_the_end_of_a_node_frees_the_verify_node_of_texts_that_nobody_reads_on() -> None:
    async with edge() as here, aclosing(here.service.write(endless())) as pieces:
        await anext(pieces)
        here.service.draining = True
        await here.service.cut_off(0.0)
        await until(lambda: not here.verify.core.sessions)
        with pytest.raises(Draining):
            [piece async for piece in pieces]
        assert here.daemon.core.statistics.num_tokens < 900


@pytest.mark.parametrize(("prompt", "code"), [((5,) * 5000, "prompt"), ((4095, 4096), "vocabulary")])
async def test_a_refused_text_says_why(prompt: tuple[int, ...], code: str) -> None:
    async with edge() as here:
        with pytest.raises(RequestRefused) as refused:
            await write(here.service, generation(max_tokens=4, prompt=prompt))
        assert refused.value.code == code
        assert here.service.stats.failed == {code: 1}
        await here.until_free()
