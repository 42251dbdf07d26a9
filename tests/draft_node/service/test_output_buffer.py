"""Unread output of all users is bounded; the request that holds most of it fails."""

import pytest

from draft_node.parsing.formats import Content
from draft_node.service import output_buffer
from draft_node.service.output_buffer import OutputBuffer
from draft_node.service.output_processor import Piece
from draft_node.service.token_text import Token
from goodspeed.errors import RequestRefused

PIECE = Piece((Content("ab"),), tuple(Token(1, "a", b"a", -1.0, (Token(2, "b", b"b", -2.0),) * 2) for _ in range(2)))
SIZE = 12


@pytest.fixture
def buffers(monkeypatch: pytest.MonkeyPatch) -> set[OutputBuffer]:
    """Those of all requests, which may hold four pieces."""
    monkeypatch.setattr(output_buffer, "MAX_UNREAD", 4 * SIZE)
    return set()


def num_held(buffers: set[OutputBuffer]) -> int:
    return sum(one.num_held for one in buffers)


async def test_the_request_that_holds_most_fails_and_the_others_go_on(buffers: set[OutputBuffer]) -> None:
    slow, quick = OutputBuffer(buffers), OutputBuffer(buffers)
    for _ in range(3):
        slow.put((0, PIECE))
        quick.put((0, PIECE))
        assert await quick.get() == (0, PIECE)
    quick.put((1, PIECE))
    assert num_held(buffers) == 4 * SIZE
    assert quick.put((1, PIECE))
    assert num_held(buffers) == 2 * SIZE
    assert not slow.put((0, PIECE))
    assert num_held(buffers) == 2 * SIZE
    _, error = await slow.get()
    assert (type(error), error.code) == (RequestRefused, "unread")
    assert [await quick.get(), await quick.get()] == [(1, PIECE)] * 2


@pytest.mark.parametrize("num_read", [0, 2])
async def test_nothing_is_held_for_a_request_that_has_ended(buffers: set[OutputBuffer], num_read: int) -> None:
    items = OutputBuffer(buffers)
    for _ in range(3):
        items.put((0, PIECE))
    for _ in range(num_read):
        await items.get()
    items.end()
    assert num_held(buffers) == 0
