"""Openings wait for their constraint, which is compiled beside the event loop, sender by sender."""

import asyncio
import threading
import time
from typing import Any

import pytest

from goodspeed.constraint.compiling import Constraints
from goodspeed.errors import ConstraintError
from goodspeed.wire.enrolled import Enrolled
from goodspeed.wire.generation import Constraint
from goodspeed.wire.messages import Ack, Close, Refusal
from goodspeed.wire.zmq.transport import Received
from tests.constraint.babbler import VOCABULARY
from tests.fakes import make_hello, make_open, session_id
from tests.verify_node.loops import Loop, ask, hear, served
from verify_node import messages
from verify_node.core.replies import Send
from verify_node.messages import Compiling


class SlowGrammars:
    """Compiles on whatever thread asks, and tells which."""

    def __init__(self):
        self.sources: list[str] = []
        self.threads: set[str] = set()

    def holds(self, session_id, constraint):
        return False

    def compiled(self, constraint):
        self.threads.add(threading.current_thread().name)
        self.sources.append(constraint.source)

    def offer(self, constraint, compiled):
        self.offered = constraint.source


@pytest.fixture
def grammars() -> Any:
    return SlowGrammars()


@pytest.fixture
def waiting(grammars):
    return Compiling(grammars)


def opening(peer, number, source="a"):
    message = make_open(number, constraint=Constraint("regex", source))
    return Received(peer, message, 100, None)


def test_openings_with_a_constraint_wait():
    constraints = Constraints(VOCABULARY)
    waiting = Compiling(constraints)
    assert waiting.concerns(opening(b"a", 1))
    assert not waiting.concerns(Received(b"a", make_open(1), 100, None))
    assert not waiting.concerns(Received(b"a", Ack(session_id(1), 1, 3), 100, None))
    assert not waiting.concerns(Received(b"a", ConstraintError("bytes that were no message"), 100, None))  # type: ignore[arg-type]


def test_only_what_opens_again_need_not_wait():
    """What others have sent must not be known: the time until the answer would tell."""
    constraints = Constraints(VOCABULARY)
    waiting = Compiling(constraints)
    constraints.hold(session_id(1), Constraint("regex", "a"))
    assert not waiting.concerns(opening(b"a", 1))
    assert waiting.concerns(opening(b"a", 2))
    assert waiting.concerns(opening(b"a", 1, "b"))


@served
async def test_what_came_of_it_is_offered_to_the_session_that_is_given_out(waiting, grammars):
    for number, source in enumerate("ab"):
        waiting.take(opening(b"a", number, source))
    for source in "ab":
        given = await waiting.next()
        assert given.message.constraint.source == grammars.offered == source


@served
async def test_an_opening_that_is_repeated_while_it_waits_is_compiled_once(waiting, grammars):
    """A draft node repeats it after a second without an answer: just when much waits."""
    for _ in range(2):
        assert waiting.take(opening(b"a", 1))
    assert await waiting.next() == opening(b"a", 1)
    grammars.holds = lambda session_id, constraint: True
    assert await waiting.next() == opening(b"a", 1)
    assert grammars.sources == ["a"]


@served
async def test_senders_take_turns_and_the_event_loop_does_not_compile(waiting, grammars):
    for number in range(3):
        assert waiting.take(opening(b"greedy", number, f"g{number}"))
    assert waiting.take(opening(b"modest", 9, "m"))
    assert [(await waiting.next()).peer for _ in range(4)] == [b"greedy", b"modest", b"greedy", b"greedy"]
    assert grammars.sources == ["g0", "m", "g1", "g2"]
    assert threading.current_thread().name not in grammars.threads


def test_too_many_of_one_sender_are_not_taken(waiting, monkeypatch):
    monkeypatch.setattr(messages, "MAX_WAITING", 2)
    assert [waiting.take(opening(b"a", number)) for number in range(3)] == [True, True, False]
    assert waiting.take(opening(b"b", 1))


@served
async def test_one_that_comes_while_nothing_waits_is_given_out(waiting):
    task = asyncio.create_task(waiting.next())
    await asyncio.sleep(0)
    waiting.take(opening(b"a", 5))
    assert await task == opening(b"a", 5)


def closing(peer, number, epoch=1, principal=None):
    return Received(peer, Close(session_id(number), epoch), 30, principal)


@served
async def test_what_is_closed_while_it_waits_is_not_opened(waiting, grammars):
    for number in (1, 2, 3):
        waiting.take(opening(b"a", number, f"s{number}"))
    waiting.take(opening(b"b", 1, "another's"))
    waiting.forget(closing(b"a", 1))
    waiting.forget(closing(b"a", 2, epoch=0))  # of an earlier opening
    waiting.forget(closing(b"a", 3, principal="a key that does not speak for it"))
    waiting.forget(closing(b"c", 2))
    given = [await waiting.next() for _ in range(3)]
    assert {(one.peer, one.message.session_id) for one in given} == {
        (b"a", session_id(2)),
        (b"a", session_id(3)),
        (b"b", session_id(1)),
    }
    assert "s1" not in grammars.sources


@served
async def test_what_is_closed_while_it_is_compiled_is_not_opened(waiting, grammars):
    goes_on, is_compiling, compiled = threading.Event(), threading.Event(), grammars.compiled

    def held(constraint):
        is_compiling.set()
        assert goes_on.wait(30)
        compiled(constraint)

    grammars.compiled = held
    waiting.take(opening(b"a", 1, "first"))
    waiting.take(opening(b"a", 2, "second"))
    task = asyncio.create_task(waiting.next())
    await asyncio.to_thread(is_compiling.wait, 30)
    waiting.forget(closing(b"a", 1))
    goes_on.set()
    assert (await task).message.session_id == session_id(2)
    assert grammars.sources == ["first", "second"]


@served
async def test_the_node_opens_no_session_whose_close_overtook_it(waiting, grammars):
    goes_on, compiled = threading.Event(), grammars.compiled

    def held(constraint):
        assert goes_on.wait(30)
        compiled(constraint)

    grammars.compiled = held
    async with Loop() as loop:
        loop.daemon.messages.compiling = waiting
        channel = await loop.let_in()
        await channel.send(opening(b"", 1, "first").message)
        await channel.send(Close(session_id(1), 1))
        await ask(channel, Ack(session_id(9), 1, 3))  # so the Close was heard
        goes_on.set()
        await channel.send(opening(b"", 2, "second").message)
        heard = await hear(channel)  # the fake core serves no forms
    assert heard.session_id == session_id(2)
    assert grammars.sources[-1] == "second"


@served
async def test_another_key_takes_no_turn_of_the_peer_by_whose_name_it_speaks(waiting, monkeypatch):
    """The peer's own openings would wait for it, or be refused as too many."""
    async with Loop() as loop:
        loop.daemon.messages.compiling = waiting
        now, keys = time.monotonic(), {name: name * 40 for name in "ab"}
        loop.core.enrol({key: Enrolled(name, key) for name, key in keys.items()}, now)
        loop.core.receive(b"a", make_hello("a"), now, keys["a"])
        sends = list[Send]()
        monkeypatch.setattr(loop.daemon.messages, "reply", sends.extend)
        loop.daemon.messages.hear([Received(b"a", opening(b"a", 1).message, 100, keys["b"])])
    assert [send.message.code for send in sends if isinstance(send.message, Refusal)] == ["not_owner"]
