"""Connections that the verify side ends, on real sockets: of those that are barred, and of messages without an end.

And what it must not end, or lose: large messages, many of them, and peers that do not read.
"""

import asyncio
import ctypes
import os
import resource
import socket
from contextlib import ExitStack, suppress
from typing import Any

import msgspec
import pytest
import zmq
from zmq.utils.monitor import recv_monitor_message

from goodspeed.wire import descriptors
from goodspeed.wire.channels import Delivery, DraftChannel, VerifyChannel
from goodspeed.wire.messages import Draft, Refusal
from goodspeed.wire.zmq import opening_channels
from goodspeed.wire.zmq.authentication import new_pair
from goodspeed.wire.zmq.connection_guard import ROOM, Guard, accepted, cut, peer_of
from tests.descriptors import at_most
from tests.waiting import arrival, until
from tests.wire.net import LIMIT, hello, monitored, network, raw_socket
from tests.wire.test_transport import SESSION, ack, verdict

pytestmark = pytest.mark.alone

LAST_WORD = Refusal("barred", "this draft node sent rubbish", "reconnect after 30 s")


async def until_cut(verify: VerifyChannel, honest: DraftChannel, num_cut: int) -> None:
    """Serves an honest draft node until so many connections are cut."""
    while verify.transport.num_cut < num_cut:
        await honest.send(hello("honest"))
        assert (await arrival(verify)).message == hello("honest")


def noticed(monitor: "zmq.Socket[bytes]") -> bool:
    return bool(monitor.poll(0)) and recv_monitor_message(monitor)["event"] == zmq.EVENT_DISCONNECTED


async def test_who_is_barred_gets_a_last_word_and_is_cut() -> None:
    """Also when it comes back; nothing of it is decoded, and an honest draft node is served meanwhile."""
    barred: set[bytes] = set()
    async with network() as net:
        net.verify.transport.bar(barred)
        honest = net.draft()
        hostile = raw_socket(net.verify.endpoint, routing_id=b"hostile")
        with hostile as peer, monitored(peer, zmq.EVENT_DISCONNECTED) as monitor:
            peer.send(b"\xc1")
            await arrival(net.verify)
            barred.add(b"hostile")
            assert net.verify.send(b"hostile", LAST_WORD) is Delivery.SENT
            for num_cut in (1, 2):
                for _ in range(100):
                    peer.send(b"\xc1" * 100)
                await until_cut(net.verify, honest, num_cut)
                await until(lambda: noticed(monitor))
            assert msgspec.msgpack.decode(peer.recv(), type=Refusal) == LAST_WORD
            assert net.verify.traffic.num_malformed == 1
            assert net.verify.traffic.num_unheard >= 100
            barred.clear()
            peer.send(msgspec.msgpack.encode(ack(3)))
            while (received := await arrival(net.verify)).message != ack(3):
                pass
            assert received.peer == b"hostile"


async def test_with_keys_it_is_the_key_that_is_barred() -> None:
    barred: set[bytes] = set()
    async with network(new_pair()) as net:
        net.verify.transport.bar(barred)
        good, bad = (net.draft(net.enrol(name)) for name in ("good", "bad"))
        await bad.send(hello("bad"))
        received = await arrival(net.verify)
        assert received.principal is not None
        barred.add(received.principal.encode())
        await bad.send(hello("bad"))
        await until_cut(net.verify, good, 1)
        assert net.verify.transport.num_cut == 1
        assert net.verify.traffic.num_unheard >= 1


async def test_a_message_of_very_many_frames_is_refused_and_the_rest_of_it_thrown_away() -> None:
    async with network() as net:
        with raw_socket(net.verify.endpoint, routing_id=b"hostile") as peer:
            peer.send_multipart([b""] * 20_000)
            peer.send(msgspec.msgpack.encode(ack(1)))
            assert "4095 frames instead of one" in str((await arrival(net.verify)).message)
            assert (await arrival(net.verify)).message == ack(1)
            assert net.verify.traffic.num_received == 2


async def test_large_messages_without_pause_are_no_endless_one() -> None:
    """Each as long as may be, more than the line holds, and a reader that is away now and then."""
    async with network() as net:
        draft = net.draft()
        large = Draft(SESSION, 1, 3, (1,), proposal=b"\0" * (LIMIT - 100))

        async def write() -> None:
            for _ in range(300):
                await draft.send(large)

        writing = asyncio.create_task(write())
        for number in range(300):
            if number % 60 == 0:
                await asyncio.sleep(0.25)  # time passes, for those who look at connections
            assert (await arrival(net.verify)).message == large
        await writing
        assert net.verify.transport.num_cut == 0


async def test_what_is_sent_is_received_or_refused_downwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """A draft node that does not read: each verdict arrives, in order, or was told to be BUSY; others get theirs."""
    monkeypatch.setattr(opening_channels, "DOWN_QUEUE", 16)
    async with network() as net:
        draft, stuck = await net.greeted("stuck")
        reading, reader = await net.greeted("reads")
        sent: list[tuple[int, Delivery]] = []
        while net.verify.traffic.num_busy < 5:
            sent.append((number := len(sent), net.verify.send(stuck, verdict(number, 10_000))))
            await asyncio.sleep(0)
        taken = [number for number, delivery in sent if delivery is Delivery.SENT]
        assert net.verify.send(reader, verdict(7)) is Delivery.SENT
        assert await reading.receive() == verdict(7)
        assert [(await draft.receive()).base_len for _ in taken] == taken
        assert draft.receive_ready() == []
        assert net.verify.traffic.num_sent == draft.traffic.num_received + 1 == len(taken) + 1
        assert net.verify.traffic.num_sent + net.verify.traffic.num_busy == len(sent) + 1
        assert net.verify.send(b"nobody", verdict(0)) is Delivery.GONE
        assert (net.verify.traffic.num_busy, net.verify.traffic.num_gone) == (5, 1)


async def test_whoever_has_read_all_a_moment_ago_is_idle() -> None:
    """A few messages, left unread whenever it is looked at, would otherwise let endless ones grow."""
    async with network() as net:
        transport: Any = net.verify.transport
        transport._guard.open()
        transport._guard.close()  # so that only we ask
        draft = net.draft()
        assert transport._is_idle()
        await draft.send(ack(1))
        await net.verify.readable()
        assert not transport._is_idle()
        assert len(list(net.verify.arriving())) == 1
        await draft.send(ack(2))
        await net.verify.readable()
        assert transport._is_idle()
        assert not transport._is_idle()


async def test_what_is_sent_is_received_upwards() -> None:
    """The verify node does not read for a while: it has no bound of its own, but for those who are barred."""
    async with network() as net:
        draft = net.draft()
        large = Draft(SESSION, 1, 3, (1,), proposal=b"\0" * (LIMIT - 100))
        for _ in range(400):
            await draft.send(large)
        for _ in range(400):
            assert (await arrival(net.verify)).message == large
        assert list(net.verify.arriving()) == []
        assert (draft.traffic.num_sent, draft.traffic.num_busy, net.verify.traffic.num_received) == (400, 0, 400)


def test_connections_are_told_apart_by_both_their_ends() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as there:
            here, _ = server.accept()
            with here:
                there.sendall(b"123")
                peer = peer_of(here.fileno())
                assert peer == there.getsockname()
                [found] = accepted(port)
                assert (found.descriptor, found.peer, found.read_bytes) == (here.fileno(), peer, 0)
                here.recv(3)
                assert accepted(port)[0].read_bytes == 3
                assert not cut(here.fileno(), ("127.0.0.1", 1)), "another's"
                there.sendall(b"4")
                assert here.recv(1) == b"4"
                assert cut(here.fileno(), there.getsockname())
                assert there.recv(1) == b""
        assert peer_of(server.fileno()) is None
        assert peer_of(0x7FFF) is None
        assert accepted(port) == []


async def test_who_was_given_the_descriptor_of_one_that_is_barred_is_not_cut() -> None:
    """The descriptor of a barred peer may be another's by the time its messages are taken."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        guard = Guard(port, lambda: True, message_bytes=100, unread_bytes=100)
        with socket.create_connection(("127.0.0.1", port)), server.accept()[0] as here:
            guard.hang_up(here.fileno(), "10.0.0.66")
            guard.hang_up(here.fileno(), "")
            assert not guard._hanging_up
            guard.hang_up(here.fileno(), "127.0.0.1")
            await until(lambda: guard.num_cut)
        guard.close()


def test_connections_are_found_when_no_descriptor_is_left() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)), server.accept()[0] as here, ExitStack() as taken:
            taken.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(here.fileno(), 200) + 20, limits[1]))
            with suppress(OSError):
                while True:
                    taken.callback(os.close, os.dup(here.fileno()))
            assert here.fileno() in {found.descriptor for found in accepted(port)}


async def test_where_descriptors_run_out_who_says_nothing_is_cut() -> None:
    """The one that came first, first; who has said something stays, and with descriptors enough everybody does."""
    with socket.create_server(("127.0.0.1", 0)) as server, ExitStack() as lines:
        port = server.getsockname()[1]
        guard = Guard(port, lambda: True, message_bytes=100, unread_bytes=100)
        pairs = []
        for _ in range(4):
            there = lines.enter_context(socket.create_connection(("127.0.0.1", port)))
            pairs.append((there, lines.enter_context(server.accept()[0])))
            guard.look()
        pairs[0][0].sendall(b"hello")
        assert pairs[0][1].recv(5) == b"hello"
        guard.delivered(pairs[0][1].fileno())
        guard.look()
        assert guard.num_cut == 0
        most = descriptors.limit() or 0
        with at_most(most - (descriptors.num_free() or 0) + ROOM - 2):
            guard.look()
        assert guard.num_cut == 2
        assert [_is_cut(there) for there, _ in pairs] == [False, True, True, False]
        guard.close()


def _is_cut(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


async def test_nobody_can_tell_what_name_a_nameless_connection_is_given() -> None:
    """libzmq aborts where somebody else has it; it would be the same in every process."""
    names = set()
    for _ in range(2):
        ctypes.CDLL(None).srand(1)
        async with network() as net:
            with raw_socket(net.verify.endpoint) as peer:
                peer.send(msgspec.msgpack.encode(ack(1)))
                names.add((await arrival(net.verify)).peer)
    assert len(names) == 2
