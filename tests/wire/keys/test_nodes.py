"""Both nodes with keys, in one process, on real sockets, with the embedded models: who gets texts, and until when."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from draft_node.core.actions import Deliver, Finish
from draft_node.core.generation import Generation
from draft_node.process.daemon import DraftDaemon
from goodspeed.errors import TransportError
from tests.faults.conftest import make_keys
from tests.together.cluster.cluster import alone, draft_daemon, make_request, prompt_ids, verify_daemon
from tests.waiting import until
from verify_node.process.daemon import VerifyDaemon

pytestmark = pytest.mark.nodes

NUM_TOKENS = 60


class Writing(NamedTuple):
    """Texts of the draft nodes, by their names."""

    requests: dict[str, Generation]
    nodes: dict[str, DraftDaemon]
    texts: "dict[str, asyncio.Task[tuple[int, ...]]]"


class Site:
    """A folder of keys, the verify node that enrols from it, and the draft nodes a and b."""

    def __init__(self, folder: Path) -> None:
        self.folder = make_keys(folder, "ab")
        self.serving: list[asyncio.Task[None]] = []

    def enrol(self, name: str) -> None:
        (self.folder / f"{name}.pub").rename(self.folder / "enrolled" / f"{name}.pub")

    def revoke(self, name: str) -> None:
        (self.folder / "enrolled" / f"{name}.pub").rename(self.folder / f"{name}.pub")

    def start_verify(self) -> VerifyDaemon:
        own = {"key": f"{self.folder}/verify.key", "enrolled": f"{self.folder}/enrolled"}
        verify = verify_daemon(heartbeat_s=0.05, **own)
        self.serving.append(asyncio.create_task(verify.serve()))
        return verify

    def draft(self, name: str, endpoint: str) -> DraftDaemon:
        own = {"key": f"{self.folder}/{name}.key", "verify_key": f"{self.folder}/verify.pub"}
        return draft_daemon(model="tiny-draft-s", name=name, verify=(endpoint,), **own)

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


async def test_a_key_revoked_in_mid_stream_ends_its_sessions_and_no_others(tmp_path: Path) -> None:
    """The draft node is told why, keeps what it has, and writes on where it was once it is enrolled again."""
    async with site(tmp_path) as here:
        verify = here.start_verify()
        requests, nodes, texts = await here.two_write(verify)
        assert requests["a"].session_id in verify.core.sessions
        here.revoke("a")
        await until(lambda: requests["a"].session_id not in verify.core.sessions)
        assert not any(peer.client.name == "a" for peer in verify.core.peers.values())
        await until(lambda: nodes["a"].link.trouble)
        assert "(not_enrolled)" in str(nodes["a"].link.trouble)
        assert await texts["b"] == expected(requests["b"])
        assert not texts["a"].done()
        here.enrol("a")
        assert await texts["a"] == expected(requests["a"])
        assert nodes["a"].link.trouble is None


async def test_who_never_gets_in_is_told_why_in_the_end(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        here.revoke("a")
        node = here.draft("a", here.start_verify().channel.endpoint)
        serving = asyncio.create_task(node.serve())
        await until(lambda: node.link.trouble)
        node.core.connect_timeout_s = 0.0  # it is over
        with pytest.raises(
            TransportError, match=r"has not let this draft node in for 0 s: this draft node's key.*a\.pub"
        ):
            await serving
