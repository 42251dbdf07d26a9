"""Openings whose constraint is compiled first: beside the event loop, and sender by sender."""

import asyncio
import threading

from goodspeed.errors import GrammarError
from goodspeed.grammar.compiling import Grammars
from goodspeed.wire.generation import Constraint
from goodspeed.wire.handshake import Welcome
from goodspeed.wire.messages import Ack, Close, OpenSession
from goodspeed.wire.zmq.transport import Received
from tests.fakes import Desk, make_hello, make_open, session_id
from tests.grammar.babbler import VOCABULARY
from tests.verify_node.loops import Loop, ask, hear
from verify_node.opening import compiling
from verify_node.opening.compiling import Compiling


def peer_of(name):
    desk = Desk()
    desk.hello(name)
    [peer] = desk.core.peers.values()
    return peer


class SlowGrammars:
    """Compiles on whatever thread asks, and tells which."""

    def __init__(self):
        self.compiled: list[str] = []
        self.threads: set[str] = set()

    def known(self, constraint, scope):
        return constraint.source in self.compiled

    def problem(self, constraint, scope):
        self.threads.add(threading.current_thread().name)
        self.compiled.append(constraint.source)


PEER = peer_of("a")


def opening(peer, number, source="a"):
    message = make_open(number, constraint=Constraint("regex", source))
    return Received(peer, message, 100, None)


def test_only_openings_with_an_unknown_constraint_wait():
    grammars = SlowGrammars()
    waiting = Compiling(grammars)  # type: ignore[arg-type]
    assert waiting.concerns(opening(b"a", 1), PEER)
    grammars.compiled.append("a")
    assert not waiting.concerns(opening(b"a", 1), PEER)
    assert not waiting.concerns(Received(b"a", make_open(1), 100, None), PEER)
    assert not waiting.concerns(Received(b"a", Ack(session_id(1), 1, 3), 100, None), PEER)
    assert not waiting.concerns(Received(b"a", GrammarError("bytes that were no message"), 100, None), PEER)  # type: ignore[arg-type]


def test_what_another_client_or_user_has_sent_is_not_known():
    """Else the time until the answer would tell that it was sent."""
    waiting = Compiling(Grammars(VOCABULARY))
    here, there = map(peer_of, "ab")

    def opens(number, salt):
        message = make_open(number, constraint=Constraint("regex", "a"), cache_salt=salt)
        return Received(b"a", message, 100, None)

    async def compile_first():
        waiting.take(opens(1, b"alice"), here)
        waiting.take(opens(2, b""), here)
        await waiting.next()
        await waiting.next()

    asyncio.run(compile_first())
    assert not waiting.concerns(opens(3, b"alice"), here)
    assert waiting.concerns(opens(3, b"alice"), there)
    assert waiting.concerns(opens(3, b"bob"), here)
    assert waiting.concerns(opens(3, b""), here)
    assert not waiting.concerns(opens(2, b""), here)  # opened again


def test_senders_take_turns_and_the_event_loop_does_not_compile():
    grammars = SlowGrammars()
    waiting = Compiling(grammars)  # type: ignore[arg-type]
    for number in range(3):
        assert waiting.take(opening(b"greedy", number, f"g{number}"), PEER)
    assert waiting.take(opening(b"modest", 9, "m"), PEER)

    async def take_all():
        return [(await waiting.next()).peer for _ in range(4)]

    assert asyncio.run(take_all()) == [b"greedy", b"modest", b"greedy", b"greedy"]
    assert grammars.compiled == ["g0", "m", "g1", "g2"]
    assert threading.current_thread().name not in grammars.threads


def test_too_many_of_one_sender_are_not_taken(monkeypatch):
    monkeypatch.setattr(compiling, "MAX_WAITING", 2)
    waiting = Compiling(SlowGrammars())  # type: ignore[arg-type]
    assert [waiting.take(opening(b"a", number), PEER) for number in range(3)] == [True, True, False]
    assert waiting.take(opening(b"b", 1), PEER)


def test_one_that_comes_while_nothing_waits_is_given_out():
    waiting = Compiling(SlowGrammars())  # type: ignore[arg-type]

    async def later():
        task = asyncio.create_task(waiting.next())
        await asyncio.sleep(0)
        waiting.take(opening(b"a", 5), PEER)
        return await task

    received = asyncio.run(later())
    assert isinstance(received.message, OpenSession)
    assert received.message.session_id == session_id(5)


def closing(peer, number, epoch=1, principal=None):
    return Received(peer, Close(session_id(number), epoch), 30, principal)


def test_what_is_closed_while_it_waits_is_not_opened():
    grammars = SlowGrammars()
    waiting = Compiling(grammars)  # type: ignore[arg-type]
    for number in (1, 2, 3):
        waiting.take(opening(b"a", number, f"s{number}"), PEER)
    waiting.take(opening(b"b", 1, "another's"), PEER)
    waiting.forget(closing(b"a", 1))
    waiting.forget(closing(b"a", 2, epoch=0))  # of an earlier opening
    waiting.forget(closing(b"a", 3, principal="a key that does not speak for it"))
    waiting.forget(closing(b"c", 2))

    async def take_all():
        return [(one := await waiting.next()).peer + one.message.session_id[-1:] for _ in range(3)]

    assert set(asyncio.run(take_all())) == {b"a" + session_id(n)[-1:] for n in (2, 3)} | {b"b" + session_id(1)[-1:]}
    assert "s1" not in grammars.compiled


def test_what_is_closed_while_it_is_compiled_is_not_opened():
    grammars, goes_on, is_compiling = SlowGrammars(), threading.Event(), threading.Event()
    problem = grammars.problem

    def held(constraint, scope):
        is_compiling.set()
        assert goes_on.wait(30)
        problem(constraint, scope)

    grammars.problem = held  # type: ignore[method-assign]
    waiting = Compiling(grammars)  # type: ignore[arg-type]

    async def close_the_first():
        waiting.take(opening(b"a", 1, "first"), PEER)
        waiting.take(opening(b"a", 2, "second"), PEER)
        task = asyncio.create_task(waiting.next())
        await asyncio.to_thread(is_compiling.wait, 30)
        waiting.forget(closing(b"a", 1))
        goes_on.set()
        return await task

    assert asyncio.run(close_the_first()).message.session_id == session_id(2)
    assert grammars.compiled == ["first", "second"]


def test_the_node_opens_no_session_whose_close_overtook_it():
    compiled, goes_on = list[str](), threading.Event()

    class HeldGrammars(SlowGrammars):
        def problem(self, constraint, scope):
            assert goes_on.wait(30)
            compiled.append(constraint.source)

    async def serve():
        async with Loop() as loop:
            loop.daemon.compiling = Compiling(HeldGrammars())  # type: ignore[arg-type]
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
