"""The demo takes the text of a node's stream alone."""

import asyncio

from goodspeed.app.demo.run import _chunks
from tests.app.chat.stub import serving


def test_what_a_node_sends_while_nothing_comes_is_no_chunk() -> None:
    async def read(url: str) -> list[object]:
        return [chunk async for chunk in _chunks(url, {"prompt": "x"})]

    with serving() as stub:
        assert stub.body.count(b": waiting\n\n") == 2
        chunks = asyncio.run(read(stub.url))
    assert len(chunks) == stub.body.count(b'data: {"id"') > 2
