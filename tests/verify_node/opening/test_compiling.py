"""Openings whose constraint is compiled first: beside the event loop, and sender by sender."""

import asyncio
import threading

from goodspeed.errors import GrammarError
from goodspeed.wire.generation import Constraint
from goodspeed.wire.messages import Ack, OpenSession
from goodspeed.wire.zmq.transport import Received
from tests.fakes import make_open, session_id
from verify_node.opening import compiling
from verify_node.opening.compiling import Compiling


class SlowGrammars:
    """Compiles on whatever thread asks, and tells which."""

    def __init__(self):
        self.compiled: list[str] = []
        self.threads: set[str] = set()

    def known(self, constraint):
        return constraint.source in self.compiled

    def problem(self, constraint):
        self.threads.add(threading.current_thread().name)
        self.compiled.append(constraint.source)


def opening(peer, number, source="a"):
    message = make_open(number, constraint=Constraint("regex", source))
    return Received(peer, message, 100, None)


def test_only_openings_with_an_unknown_constraint_wait():
    grammars = SlowGrammars()
    waiting = Compiling(grammars)  # type: ignore[arg-type]
    assert waiting.concerns(opening(b"a", 1))
    grammars.compiled.append("a")
    assert not waiting.concerns(opening(b"a", 1))
    assert not waiting.concerns(Received(b"a", make_open(1), 100, None))
    assert not waiting.concerns(Received(b"a", Ack(session_id(1), 1, 3), 100, None))
    assert not waiting.concerns(Received(b"a", GrammarError("bytes that were no message"), 100, None))  # type: ignore[arg-type]


def test_senders_take_turns_and_the_event_loop_does_not_compile():
    grammars = SlowGrammars()
    waiting = Compiling(grammars)  # type: ignore[arg-type]
    for number in range(3):
        assert waiting.take(opening(b"greedy", number, f"g{number}"))
    assert waiting.take(opening(b"modest", 9, "m"))

    async def take_all():
        return [(await waiting.next()).peer for _ in range(4)]

    assert asyncio.run(take_all()) == [b"greedy", b"modest", b"greedy", b"greedy"]
    assert grammars.compiled == ["g0", "m", "g1", "g2"]
    assert threading.current_thread().name not in grammars.threads


def test_too_many_of_one_sender_are_not_taken(monkeypatch):
    monkeypatch.setattr(compiling, "MAX_WAITING", 2)
    waiting = Compiling(SlowGrammars())  # type: ignore[arg-type]
    assert [waiting.take(opening(b"a", number)) for number in range(3)] == [True, True, False]
    assert waiting.take(opening(b"b", 1))


def test_one_that_comes_while_nothing_waits_is_given_out():
    waiting = Compiling(SlowGrammars())  # type: ignore[arg-type]

    async def later():
        task = asyncio.create_task(waiting.next())
        await asyncio.sleep(0)
        waiting.take(opening(b"a", 5))
        return await task

    received = asyncio.run(later())
    assert isinstance(received.message, OpenSession)
    assert received.message.session_id == session_id(5)
