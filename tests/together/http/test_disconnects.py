"""Users who leave, and a verify node that does. Both nodes run in this process, so that one can look."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from draft_node.config import DraftConfig
from draft_node.http.app import create_app
from draft_node.service.service import Service
from goodspeed.serving.web.server import serve
from tests.listening import listen
from tests.together.cluster.cluster import Cluster, load
from tests.waiting import until

pytestmark = pytest.mark.alone


class Nodes(Cluster):
    """A verify node and a draft node that serves HTTP."""

    def __init__(self) -> None:
        options = {"model": "tiny-draft-s", "max_sessions": 2, "connect_timeout_s": 0.5}
        super().__init__({"heartbeat_s": 0.3}, {"draft": options})

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[tuple[str, int]]:
        self._start()
        draft = self.drafts["draft"]
        draft.core.stays = True
        config = DraftConfig(model="tiny-draft-s", http="127.0.0.1:0", max_sessions=2, http_max_waiting=2)
        service = Service(draft, load("tiny-draft-s"), max_waiting=2)
        listener = listen()
        address = listener.getsockname()
        app = create_app(service, config, lambda: (b"", ""))
        self.verifying = asyncio.create_task(self.verify.serve())
        tasks = [self.verifying, *(asyncio.create_task(one) for one in (draft.serve(), serve(app, listener)))]
        try:
            await draft.connected.wait()
            yield address
        finally:
            for task in reversed(tasks):
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    @property
    def num_sessions(self) -> tuple[int, int]:
        queue = self.drafts["draft"].core.queue
        return queue.num_running + queue.num_waiting, len(self.verify.core.sessions)


def request(**body: object) -> bytes:
    content = json.dumps({"prompt": "The river", "max_tokens": 1900, "ignore_eos": True, **body}).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % len(content) + content


@pytest.mark.parametrize("options", [{}, {"stream": True}, {"n": 2}, {"n": 4, "stream": True}])
async def test_a_user_who_leaves_frees_the_session_at_both_nodes(options: dict[str, Any]) -> None:
    nodes, num_texts = Nodes(), options.get("n", 1)
    async with nodes.serving() as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(request(**options))
        await until(lambda: nodes.num_sessions == (num_texts, min(num_texts, 2)))
        if "stream" in options:
            await reader.readuntil(b"data: ")
        writer.transport.abort()
        async with asyncio.timeout(5):  # a second, and room for a busy machine
            await until(lambda: nodes.num_sessions == (0, 0))


async def test_who_leaves_before_the_body_is_there_costs_nothing() -> None:
    nodes = Nodes()
    async with nodes.serving() as address:
        _, writer = await asyncio.open_connection(*address)
        writer.write(request()[:-5])
        await writer.drain()
        writer.close()
        reader, writer = await asyncio.open_connection(*address)
        writer.write(request(max_tokens=2))
        assert (await reader.readline()).split()[1] == b"200"
        writer.close()
        await until(lambda: nodes.num_sessions == (0, 0))


async def test_a_verify_node_that_goes_away_breaks_streams_by_name() -> None:
    nodes = Nodes()
    async with nodes.serving() as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(request(stream=True))
        await reader.readuntil(b"data: ")
        nodes.verifying.cancel()
        rest = (await reader.readuntil(b"data: [DONE]\n\n")).decode().split("data: ")
        assert 'finish_reason":"' not in "".join(rest)
        error = json.loads(rest[-2].splitlines()[0])["error"]
        assert error["code"] == "verify_away"
        assert nodes.num_sessions[0] == 0
        writer.close()
        reader, writer = await asyncio.open_connection(*address)
        writer.write(request())
        assert (await reader.readline()).split()[1] == b"503"
        writer.close()
