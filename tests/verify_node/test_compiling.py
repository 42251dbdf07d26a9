"""Openings wait for their constraint, which is compiled beside the event loop, sender by sender."""

import asyncio
import threading
import time

from goodspeed.constraint.compiling import Constraints
from goodspeed.errors import ConstraintError
from goodspeed.wire.enrolled import Enrolled
from goodspeed.wire.generation import Constraint
from goodspeed.wire.handshake import Welcome
from goodspeed.wire.messages import Ack, Close, OpenSession, Refusal
from goodspeed.wire.zmq.transport import Received
from tests.constraint.babbler import VOCABULARY
from tests.fakes import make_hello, make_open, session_id
from tests.verify_node.loops import Loop, ask, hear
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


def test_what_came_of_it_is_offered_to_the_session_that_is_given_out():
    constraints = SlowGrammars()
    waiting = Compiling(constraints)  # type: ignore[arg-type]
    for number, source in enumerate("ab"):
        waiting.take(opening(b"a", number, source))

    async def take_all():
        return [((await waiting.next()).message.constraint.source, constraints.offered) for _ in range(2)]

    assert asyncio.run(take_all()) == [("a", "a"), ("b", "b")]


def test_an_opening_that_is_repeated_while_it_waits_is_compiled_once():
    """A draft node repeats it after a second without an answer: just when much waits."""
    constraints = SlowGrammars()
    waiting = Compiling(constraints)  # type: ignore[arg-type]
    for _ in range(2):
        assert waiting.take(opening(b"a", 1))

    async def take_both():
        first = await waiting.next()
        constraints.holds = lambda session_id, constraint: True  # type: ignore[method-assign]
        return first, await waiting.next()

    assert asyncio.run(take_both()) == (opening(b"a", 1), opening(b"a", 1))
    assert constraints.sources == ["a"]


def test_senders_take_turns_and_the_event_loop_does_not_compile():
    constraints = SlowGrammars()
    waiting = Compiling(constraints)  # type: ignore[arg-type]
    for number in range(3):
        assert waiting.take(opening(b"greedy", number, f"g{number}"))
    assert waiting.take(opening(b"modest", 9, "m"))

    async def take_all():
        return [(await waiting.next()).peer for _ in range(4)]

    assert asyncio.run(take_all()) == [b"greedy", b"modest", b"greedy", b"greedy"]
    assert constraints.sources == ["g0", "m", "g1", "g2"]
    assert threading.current_thread().name not in constraints.threads


def test_too_many_of_one_sender_are_not_taken(monkeypatch):
    monkeypatch.setattr(messages, "MAX_WAITING", 2)
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


def closing(peer, number, epoch=1, principal=None):
    return Received(peer, Close(session_id(number), epoch), 30, principal)


def test_what_is_closed_while_it_waits_is_not_opened():
    constraints = SlowGrammars()
    waiting = Compiling(constraints)  # type: ignore[arg-type]
    for number in (1, 2, 3):
        waiting.take(opening(b"a", number, f"s{number}"))
    waiting.take(opening(b"b", 1, "another's"))
    waiting.forget(closing(b"a", 1))
    waiting.forget(closing(b"a", 2, epoch=0))  # of an earlier opening
    waiting.forget(closing(b"a", 3, principal="a key that does not speak for it"))
    waiting.forget(closing(b"c", 2))

    async def take_all():
        return [(one := await waiting.next()).peer + one.message.session_id[-1:] for _ in range(3)]

    assert set(asyncio.run(take_all())) == {b"a" + session_id(n)[-1:] for n in (2, 3)} | {b"b" + session_id(1)[-1:]}
    assert "s1" not in constraints.sources


def test_what_is_closed_while_it_is_compiled_is_not_opened():
    constraints, goes_on, is_compiling = SlowGrammars(), threading.Event(), threading.Event()
    compiled = constraints.compiled

    def held(constraint):
        is_compiling.set()
        assert goes_on.wait(30)
        compiled(constraint)

    constraints.compiled = held  # type: ignore[method-assign]
    waiting = Compiling(constraints)  # type: ignore[arg-type]

    async def close_the_first():
        waiting.take(opening(b"a", 1, "first"))
        waiting.take(opening(b"a", 2, "second"))
        task = asyncio.create_task(waiting.next())
        await asyncio.to_thread(is_compiling.wait, 30)
        waiting.forget(closing(b"a", 1))
        goes_on.set()
        return await task

    assert asyncio.run(close_the_first()).message.session_id == session_id(2)
    assert constraints.sources == ["first", "second"]


def test_the_node_opens_no_session_whose_close_overtook_it():
    compiled, goes_on = list[str](), threading.Event()

    class HeldGrammars(SlowGrammars):
        def compiled(self, constraint):
            assert goes_on.wait(30)
            compiled.append(constraint.source)

    async def serve():
        async with Loop() as loop:
            loop.daemon.messages.compiling = Compiling(HeldGrammars())  # type: ignore[arg-type]
            channel = loop.connect(b"aaaaaaaa")
            assert isinstance(await ask(channel, make_hello("a", boot_id=b"aaaaaaaa")), Welcome)
            await channel.send(opening(b"", 1, "first").message)
            await channel.send(Close(session_id(1), 1))
            await ask(channel, Ack(session_id(9), 1, 3))  # so the Close was heard
            goes_on.set()
            await channel.send(opening(b"", 2, "second").message)
            return await hear(channel)  # the fake core serves no forms

    assert asyncio.run(serve()).session_id == session_id(2)
    assert compiled[-1] == "second"


def test_another_key_takes_no_turn_of_the_peer_by_whose_name_it_speaks(monkeypatch):
    """The peer's own openings would wait for it, or be refused as too many."""

    async def serve():
        async with Loop() as loop:
            loop.daemon.messages.compiling = Compiling(SlowGrammars())  # type: ignore[arg-type]
            now, keys = time.monotonic(), {name: name * 40 for name in "ab"}
            loop.core.enrol({key: Enrolled(name, key) for name, key in keys.items()}, now)
            loop.core.receive(b"a", make_hello("a"), now, keys["a"])
            sends = list[Send]()
            monkeypatch.setattr(loop.daemon.messages, "reply", sends.extend)
            loop.daemon.messages.hear([Received(b"a", opening(b"a", 1).message, 100, keys["b"])])
            return [send.message.code for send in sends if isinstance(send.message, Refusal)]

    assert asyncio.run(serve()) == ["not_owner"]
