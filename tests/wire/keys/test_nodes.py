"""Both nodes with keys, in one process, on real sockets, with the embedded models: who gets texts, and until when."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from draft_node.config import DraftConfig
from draft_node.core.actions import Deliver, Finish
from draft_node.core.generation import Generation
from draft_node.process import assembly as draft_assembly
from draft_node.process import preflight as draft_beforehand
from draft_node.process.daemon import DraftDaemon
from goodspeed.errors import TransportError
from goodspeed.fair.refined import Refined
from goodspeed.serving.events import EventLog
from goodspeed.wire import keys
from goodspeed.wire.enrolled import Enrolled
from goodspeed.wire.zmq.authentication import new_pair
from goodspeed.wire.zmq.transport import bind_verify, connect_draft
from tests.together.cluster.cluster import alone, load, make_request, prompt_ids
from tests.waiting import run_async, until
from verify_node.config import VerifyConfig
from verify_node.process import assembly as verify_assembly
from verify_node.process import preflight as verify_beforehand
from verify_node.process.daemon import VerifyDaemon

pytestmark = pytest.mark.nodes

NUM_TOKENS = 60


class Writing(NamedTuple):
    """Texts of the draft nodes, by their names."""

    requests: dict[str, Generation]
    nodes: dict[str, DraftDaemon]
    texts: "dict[str, asyncio.Task[tuple[int, ...]]]"


class Site:
    """A folder of keys, the verify node that enrols from it, and draft nodes."""

    def __init__(self, folder: Path) -> None:
        self.enrolled = folder / "enrolled"
        self.enrolled.mkdir()
        self.folder = folder
        pair = new_pair()
        keys.write_secret(folder / "verify.key", pair)
        keys.write_verify_key(folder / "verify.pub", pair.public_key)
        self.serving: list[asyncio.Task[None]] = []

    def key(self, name: str, **limits: Any) -> None:
        """A pair for a draft node; its public file waits beside the enrolment folder."""
        pair = new_pair(name)
        keys.write_secret(self.folder / f"{name}.key", pair)
        keys.write_enrolled(self.folder / f"{name}.pub", Enrolled(name, pair.public_key, **limits))

    def enrol(self, name: str) -> None:
        (self.folder / f"{name}.pub").rename(self.enrolled / f"{name}.pub")

    def revoke(self, name: str) -> None:
        (self.enrolled / f"{name}.pub").rename(self.folder / f"{name}.pub")

    def start_verify(self) -> VerifyDaemon:
        config = VerifyConfig(
            model="tiny-target",
            bind="tcp://127.0.0.1:0",
            heartbeat_s=0.05,
            key=str(self.folder / "verify.key"),
            enrolled=str(self.enrolled),
        )
        target = load("tiny-target")
        welcome = verify_assembly.make_welcome(config, target)
        server_keys, enrolment = verify_beforehand.read_keys(config)
        channel = bind_verify(config.bind, max_message_bytes=welcome.max_message_bytes, keys=server_keys)
        runner = verify_assembly.make_runner(config, target)
        events = EventLog(enabled=False)
        verify = verify_assembly.build(config, runner, channel, welcome, events, Refined(), enrolment)
        self.serving.append(asyncio.create_task(verify.serve()))
        return verify

    def draft(self, name: str, endpoint: str, **options: Any) -> DraftDaemon:
        config = DraftConfig(
            model="tiny-draft-s",
            name=name,
            verify=(endpoint,),
            key=str(self.folder / f"{name}.key"),
            verify_key=str(self.folder / "verify.pub"),
            **options,
        )
        boot_id = secrets.token_bytes(8)
        line = connect_draft(config.verify[0], keys=draft_beforehand.read_keys(config))
        return draft_assembly.build(config, load(config.model), line, boot_id)

    async def two_write(self, verify: VerifyDaemon) -> Writing:
        """Draft nodes a and b, each with a text; a's has begun."""
        requests = {name: make_request(prompt_ids(n), NUM_TOKENS, seed=n) for n, name in enumerate("ab")}
        nodes = {name: self.start_draft(name, verify.channel.endpoint) for name in requests}
        begun = asyncio.Event()
        texts = {
            name: asyncio.create_task(text(nodes[name], request, begun if name == "a" else None))
            for name, request in requests.items()
        }
        await begun.wait()
        return Writing(requests, nodes, texts)

    def start_draft(self, name: str, endpoint: str) -> DraftDaemon:
        daemon = self.draft(name, endpoint)
        self.serving.append(asyncio.create_task(daemon.serve()))
        return daemon


@asynccontextmanager
async def site(folder: Path) -> AsyncIterator[Site]:
    one = Site(folder)
    try:
        yield one
        assert not any(task.done() for task in one.serving)
    finally:
        for task in one.serving:
            task.cancel()
        await asyncio.gather(*one.serving, return_exceptions=True)


async def text(daemon: DraftDaemon, request: Generation, begun: asyncio.Event | None = None) -> tuple[int, ...]:
    """All that a user got; the text has to come to its end."""
    tokens: tuple[int, ...] = ()
    async for item in daemon.generate(request):
        if not isinstance(item, Deliver):
            assert isinstance(item, Finish), item
            return tokens
        tokens += item.tokens
        if begun is not None:
            begun.set()
    raise AssertionError("no end came")


def expected(request: Generation) -> tuple[int, ...]:
    return alone(request.prompt, request.sampling, request.max_tokens)


@run_async
async def test_a_key_revoked_in_mid_stream_ends_its_sessions_and_no_others(tmp_path: Path) -> None:
    """The draft node is told why, keeps what it has, and writes on where it was once it is enrolled again."""
    async with site(tmp_path) as here:
        for name in ("a", "b"):
            here.key(name)
            here.enrol(name)
        verify = here.start_verify()
        requests, nodes, texts = await here.two_write(verify)
        assert requests["a"].session_id in verify.core.sessions
        here.revoke("a")
        assert verify.enrolment is not None
        verify.enrolment.look()
        assert requests["a"].session_id not in verify.core.sessions, "at once"
        assert not any(peer.client.name == "a" for peer in verify.core.peers.values())
        await until(lambda: nodes["a"].link.trouble)
        assert "(not_enrolled)" in str(nodes["a"].link.trouble)
        assert await texts["b"] == expected(requests["b"])
        assert not texts["a"].done()
        here.enrol("a")
        assert await texts["a"] == expected(requests["a"])
        assert nodes["a"].link.trouble is None


@run_async
async def test_the_verify_node_looks_for_revoked_keys_by_itself(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        here.key("a")
        here.enrol("a")
        verify = here.start_verify()
        node = here.start_draft("a", verify.channel.endpoint)
        await until(lambda: verify.core.peers and node.link.connected)
        assert node.link.trouble is None
        here.revoke("a")
        await until(lambda: not verify.core.peers)
        await until(lambda: node.link.trouble)
        assert "(not_enrolled)" in str(node.link.trouble)
        assert verify.enrolment is not None
        assert verify.enrolment.enrolled == {}


@run_async
async def test_who_never_gets_in_is_told_why_in_the_end(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        here.key("never")
        verify = here.start_verify()
        node = here.draft("never", verify.channel.endpoint)
        serving = asyncio.create_task(node.serve())
        await until(lambda: node.link.trouble)
        node.core.connect_timeout_s = 0.0  # it is over
        with pytest.raises(
            TransportError, match=r"because it refuses this node: it refused this draft node's key.*never\.pub"
        ):
            await serving
