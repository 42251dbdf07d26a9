"""Real sockets on loopback: who gets what, and who is told what did not arrive."""

import asyncio
import contextlib
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
import zmq
from zmq.utils.monitor import recv_monitor_message

from goodspeed.errors import ConfigError, MalformedMessage, MessageTooLarge, ProtocolError, TransportError, WrongVersion
from goodspeed.wire import channels, descriptors
from goodspeed.wire.channels import Delivery, DraftChannel, Received, VerifyChannel
from goodspeed.wire.handshake import VERSION
from goodspeed.wire.messages import Ack, Draft, Refusal, UpMessage, Verdict
from goodspeed.wire.zmq import opening_channels
from goodspeed.wire.zmq.opening_channels import bind_verify, connect_draft
from goodspeed.wire.zmq.sockets import SocketTransport
from tests.descriptors import at_most
from tests.faults.proxy import Proxy
from tests.waiting import TIMEOUT_S, arrival, until
from tests.wire.net import LIMIT, hello, monitored, network, raw_socket

pytestmark = pytest.mark.nodes

SESSION = bytes(range(16))


def ack(base_len: int) -> Ack:
    return Ack(session_id=SESSION, epoch=1, base_len=base_len)


def verdict(base_len: int, num_tokens: int = 1) -> Verdict:
    return Verdict(SESSION, 1, base_len, (7,) * num_tokens, 0, 0, 4)


def waits(channel: DraftChannel | VerifyChannel) -> bool:
    """True if somebody waits in `receive` for what is not there yet."""
    return bool(channel.transport._waiters)


async def test_echo() -> None:
    async with network() as net:
        draft = net.draft()
        await draft.send(hello("a"))
        received = await arrival(net.verify)
        assert received == Received(received.peer, hello("a"), received.num_bytes)
        assert net.verify.send(received.peer, verdict(3)) is Delivery.SENT
        assert await draft.receive() == verdict(3)
        assert draft.traffic.num_sent == net.verify.traffic.num_received == 1
        assert draft.traffic.bytes_sent == net.verify.traffic.bytes_received == received.num_bytes
        assert draft.traffic.bytes_received == net.verify.traffic.bytes_sent > 0


async def test_a_peer_that_left_is_gone() -> None:
    async with network() as net:
        draft, peer = await net.greeted("a")
        draft.close()
        await until(lambda: net.verify.send(peer, verdict(3)) is Delivery.GONE)
        num_sent = net.verify.traffic.num_sent
        assert net.verify.send(peer, verdict(3)) is Delivery.GONE  # and stays so
        assert (net.verify.traffic.num_sent, net.verify.traffic.num_gone) == (num_sent, 2)


async def test_a_draft_node_that_connects_again_is_heard_and_answered() -> None:
    """On sockets it has a new name: a name is of one connection."""
    async with network() as net:
        draft, peer = await net.greeted("a")
        waiting = asyncio.create_task(draft.receive())
        await asyncio.sleep(0)
        draft.transport.rebuild()
        await draft.send(hello("again"))
        received = await arrival(net.verify)
        assert received.message == hello("again")
        assert received.peer != peer
        assert net.verify.send(received.peer, verdict(3)) is Delivery.SENT
        assert await waiting == verdict(3)  # who waited before the reconnect, waits on the new connection


async def test_without_descriptors_no_connection_is_made_and_the_old_one_stays() -> None:
    async with network() as net:
        draft, peer = await net.greeted("a")
        num_open = (descriptors.limit() or 0) - (descriptors.num_free() or 0)
        with at_most(num_open):
            with pytest.raises(TransportError, match="more files and sockets"):
                net.draft()
            with pytest.raises(TransportError, match="cannot open a socket"):
                draft.transport.rebuild()
            assert net.verify.send(peer, verdict(3)) is Delivery.SENT
            assert await draft.receive() == verdict(3)
        draft.transport.rebuild()
        await draft.send(hello("again"))
        assert (await arrival(net.verify)).message == hello("again")


async def test_a_connection_that_ended_is_told_once_and_another_is_made() -> None:
    async with network() as net:
        with Proxy(net.verify.endpoint) as line:
            draft = net.draft(endpoint=line.endpoint)
            await draft.send(hello("a"))
            first = await arrival(net.verify)
            assert not draft.transport.broke()
            line.cut()
            line.heal()
            await until(draft.transport.broke)
            assert not draft.transport.broke()
            await draft.send(hello("again"))  # on the next one, by itself
            second = await arrival(net.verify)
            assert second.message == hello("again")
            assert second.peer != first.peer
            assert not draft.transport.broke()


async def test_all_that_is_pending_comes_in_one_go() -> None:
    async with network() as net:
        draft = net.draft()
        for number in range(300):
            await draft.send(ack(number))
        received = [await arrival(net.verify)]
        while len(received) < 300:
            ready = list(net.verify.arriving())
            assert len(ready) <= 256
            assert not (net.verify.emptied and len(ready) == 256)
            received += ready or [await arrival(net.verify)]
        assert [entry.message for entry in received] == [ack(number) for number in range(300)]
        assert list(net.verify.arriving()) == []
        assert not net.verify.emptied  # there was nothing
        await draft.send(ack(300))
        await net.verify.readable()
        assert len(list(net.verify.arriving())) == 1
        assert net.verify.emptied
        for number in range(3):
            net.verify.send(received[0].peer, verdict(number))
        answers: list[object] = [await draft.receive()]
        while len(answers) < 3:
            answers += draft.receive_ready() or [await draft.receive()]
        assert answers == [verdict(number) for number in range(3)]


async def test_sending_does_not_swallow_the_signal_that_something_came() -> None:
    async with network() as net:
        with raw_socket(net.verify.endpoint, routing_id=b"peer") as peer:
            good = msgspec.msgpack.encode(ack(1))
            peer.send(good)
            await arrival(net.verify)
            waiting = asyncio.create_task(arrival(net.verify))
            for _ in range(3):
                await asyncio.sleep(0)
            peer.send(good)
            descriptor = net.verify.transport._descriptor  # type: ignore[attr-defined]
            assert select.select([descriptor], [], [], TIMEOUT_S)[0]  # it came, and the event loop has not seen it
            assert net.verify.send(b"peer", verdict(3)) is Delivery.SENT
            assert not select.select([descriptor], [], [], 0)[0]  # nor will the descriptor tell
            assert (await waiting).message == ack(1)


async def test_what_nobody_takes_leaves_the_event_loop_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    async with network() as net:
        draft, peer = await net.greeted("a")
        net.verify.send(peer, verdict(1))
        await draft.receive()  # from now on the descriptor is watched
        transport, looks, whole = draft.transport, list[int](), SocketTransport._look
        assert isinstance(transport, SocketTransport)

        def counted(transport: SocketTransport) -> None:
            looks.append(1)
            whole(transport)

        transport._unwatch()
        monkeypatch.setattr(SocketTransport, "_look", counted)
        waiting = asyncio.create_task(draft.receive())
        await until(lambda: waits(draft))
        waiting.cancel()
        net.verify.send(peer, verdict(2))
        await until(lambda: bool(looks[1:]))  # the reader's: nobody waits
        looks.clear()
        for _ in range(200):
            await asyncio.sleep(0)
        assert len(looks) < 20
        assert isinstance(await draft.receive(), Verdict)


async def test_a_cancelled_receive_loses_nothing() -> None:
    async with network() as net:
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(arrival(net.verify), 0.01)
        draft = net.draft()
        await draft.send(ack(1))
        assert (await arrival(net.verify)).message == ack(1)


async def test_close_ends_who_waits() -> None:
    async with network() as net:
        draft = net.draft()
        waiting = [asyncio.create_task(draft.receive()), asyncio.create_task(arrival(net.verify))]
        await until(lambda: waits(draft) and waits(net.verify))
        draft.close()
        net.verify.close()
        for task in waiting:
            with pytest.raises(TransportError, match="closed"):
                await task
        with pytest.raises(TransportError, match="closed"):
            await draft.send(ack(1))


async def test_too_large_is_refused_before_it_is_sent() -> None:
    async with network() as net:
        draft = net.draft()
        large = Draft(SESSION, 1, 3, (1,), proposal=bytes(LIMIT))
        with pytest.raises(MessageTooLarge):
            await draft.send(large)
        with pytest.raises(MessageTooLarge):
            net.verify.send(b"a", verdict(3, num_tokens=LIMIT))
        draft.max_send_bytes = 30  # what a Welcome said
        with pytest.raises(MessageTooLarge):
            await draft.send(Draft(SESSION, 1, 3, (1, 2, 3)))
        await draft.send(hello("a"))
        assert (await arrival(net.verify)).message == hello("a")
        assert draft.traffic.num_sent == 1


GARBAGE = {
    "no MessagePack": ([b"\xc1\xc1\xc1"], MalformedMessage),
    "nothing": ([b""], MalformedMessage),
    "a number": ([b"\x01"], MalformedMessage),
    "a down message": ([msgspec.msgpack.encode(Refusal("prompt", "a", "b"))], MalformedMessage),
    "two frames": ([b"one", b"two"], MalformedMessage),
    "an empty frame before": ([b"", msgspec.msgpack.encode(ack(1))], MalformedMessage),
    "a thousand frames": ([b"x"] * 1000, MalformedMessage),
    "somewhat too large": ([bytes(LIMIT + 1000)], MessageTooLarge),
    "another version": ([msgspec.msgpack.encode(["hello", VERSION + 1, "?"])], WrongVersion),
}


@pytest.mark.parametrize(("frames", "error"), GARBAGE.values(), ids=GARBAGE)
async def test_garbage_comes_with_its_sender(frames: list[bytes], error: type) -> None:
    async with network() as net:
        with raw_socket(net.verify.endpoint, routing_id=b"hostile") as peer:
            peer.send_multipart(frames)
            received = await arrival(net.verify)
            assert received.peer == b"hostile"
            assert received.num_bytes == sum(len(frame) for frame in frames)
            assert type(received.message) is error
            assert net.verify.traffic.num_malformed == 1
            good = msgspec.msgpack.encode(ack(1))
            peer.send(good)
            assert await arrival(net.verify) == Received(b"hostile", ack(1), len(good))


async def test_sockets_of_other_kinds_disturb_nobody() -> None:
    async with network() as net:
        with raw_socket(net.verify.endpoint, zmq.REQ) as peer:
            peer.send(msgspec.msgpack.encode(ack(1)))
            assert isinstance((await arrival(net.verify)).message, MalformedMessage)
        for kind in (zmq.SUB, zmq.PUSH, zmq.PUB):  # ZeroMQ refuses these by itself
            with raw_socket(net.verify.endpoint, kind):
                draft = net.draft()
                await draft.send(hello("a"))
                assert (await arrival(net.verify)).message == hello("a")


def wait_for_event(monitor: zmq.Socket[bytes], event: zmq.Event) -> None:
    while recv_monitor_message(monitor)["event"] != event:
        pass


async def test_an_oversized_frame_costs_only_its_sender() -> None:
    async with network() as net:
        draft, honest = await net.greeted("honest")
        with raw_socket(net.verify.endpoint) as peer, monitored(peer) as monitor:
            peer.send(bytes(8 * LIMIT))  # far beyond the limit: cut off, and the message vanishes
            await draft.send(ack(2))
            assert (await arrival(net.verify)).message == ack(2)
            assert net.verify.send(honest, verdict(3)) is Delivery.SENT
            assert await draft.receive() == verdict(3)
            wait_for_event(monitor, zmq.EVENT_DISCONNECTED)  # what is queued before may be lost with the large frame
            wait_for_event(monitor, zmq.EVENT_HANDSHAKE_SUCCEEDED)  # but it may connect again
            peer.send(msgspec.msgpack.encode(ack(1)))
            assert (await arrival(net.verify)).message == ack(1)
        assert net.verify.traffic.bytes_received < LIMIT


def test_a_draft_channel_survives_garbage() -> None:
    async def test(endpoint: str) -> None:
        draft = connect_draft(endpoint, max_message_bytes=LIMIT)
        try:
            await draft.send(hello("a"))
            for expected in ("EOF|truncated", "2 frames instead of one", "exceeds the limit"):
                with pytest.raises((MalformedMessage, MessageTooLarge), match=expected):
                    await draft.receive()
            assert await draft.receive() == verdict(3)
            assert draft.traffic.num_malformed == 3
        finally:
            draft.close()

    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.linger = 0
        port = router.bind_to_random_port("tcp://127.0.0.1")

        def misbehave() -> None:
            peer, _ = router.recv_multipart()
            for frames in ([b""], [b"a", b"b"], [bytes(LIMIT + 1)], [msgspec.msgpack.encode(verdict(3))]):
                router.send_multipart([peer, *frames])

        thread = threading.Thread(target=misbehave)
        thread.start()
        asyncio.run(asyncio.wait_for(test(f"tcp://127.0.0.1:{port}"), TIMEOUT_S))
        thread.join()


@contextmanager
def unused_endpoint() -> Iterator[str]:
    """An endpoint at which nobody listens, reserved while it is used."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"tcp://127.0.0.1:{held.getsockname()[1]}"


async def test_what_is_sent_before_the_verify_node_is_there_arrives_or_was_an_error(monkeypatch) -> None:
    monkeypatch.setattr(opening_channels, "UP_QUEUE", 4)
    monkeypatch.setattr(channels, "SEND_TIMEOUT_S", 0.05)
    with unused_endpoint() as endpoint:
        draft = connect_draft(endpoint)
        for number in range(4):
            await draft.send(ack(number))
        with pytest.raises(TransportError, match=r"received no message for 0\.05 s"):
            await draft.send(ack(4))
        assert (draft.traffic.num_sent, draft.traffic.num_busy) == (4, 1)
    verify = bind_verify(endpoint)
    try:
        assert [(await arrival(verify)).message for _ in range(4)] == [ack(number) for number in range(4)]
        assert list(verify.arriving()) == []
    finally:
        draft.close()
        verify.close()


async def test_who_connects_again_drops_what_waited_and_closes_without_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening_channels, "UP_QUEUE", 1)
    monkeypatch.setattr(channels, "SEND_TIMEOUT_S", 60)
    with unused_endpoint() as endpoint:
        draft, forgotten = (connect_draft(endpoint) for _ in range(2))
        await draft.send(ack(1))
        draft.transport.rebuild()
        await draft.send(ack(2))
        await forgotten.send(ack(3))
        forgotten.close()  # returns, though what was sent last cannot leave
    verify = bind_verify(endpoint)
    try:
        assert (await arrival(verify)).message == ack(2)
        assert list(verify.arriving()) == []
    finally:
        draft.close()
        verify.close()


async def test_last_words_leave_before_the_end() -> None:
    async with network() as net:
        draft = net.draft()
        for number in range(50):
            await draft.send(ack(number))
        draft.close()
        assert [(await arrival(net.verify)).message for _ in range(50)] == [ack(number) for number in range(50)]


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "[::]", "[2001:db8::1]", "10.1.2.3"])
def test_beyond_loopback_is_refused_without_trust(host: str) -> None:
    with pytest.raises(ConfigError, match=r"^listening at tcp://.* needs keys, .*--trusted-network.*keygen verify"):
        bind_verify(f"tcp://{host}:0")
    with pytest.raises(ConfigError, match=r"^connecting to tcp://.* needs keys, .*--trusted-network.*--verify-key ver"):
        connect_draft(f"tcp://{host}:5")
    if host != "[::]":
        connect_draft(f"tcp://{host}:5", trusted_network=True).close()


def test_a_name_is_loopback_only_if_all_its_addresses_are(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, 0)) for host in ("127.0.0.1", "192.0.2.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: entries)
    with pytest.raises(ConfigError, match="--trusted-network"):
        connect_draft("tcp://two.addresses:5")


async def greeted(verify: VerifyChannel, host: str) -> UpMessage | ProtocolError:
    """Sends a hello from a draft node that connects by this name of the host, and returns what arrives.

    Closes both channels.
    """
    draft = connect_draft(f"tcp://{host}:{verify.endpoint.rpartition(':')[2]}")
    try:
        await draft.send(hello("a"))
        return (await arrival(verify)).message
    finally:
        draft.close()
        verify.close()


@pytest.mark.parametrize("host", ["*", "0.0.0.0"])
async def test_a_trusted_network_is_served(host: str) -> None:
    assert await greeted(bind_verify(f"tcp://{host}:0", trusted_network=True), "127.0.0.1") == hello("a")


@pytest.mark.parametrize(
    ("bind", "connect"), [("localhost", "127.0.0.1"), ("127.0.0.1", "localhost"), ("[::1]", "[::1]")]
)
async def test_loopback_by_any_name(bind: str, connect: str) -> None:
    if bind == "[::1]" and not Path("/proc/net/if_inet6").exists():
        pytest.skip("this machine has no IPv6")
    assert await greeted(bind_verify(f"tcp://{bind}:0"), connect) == hello("a")


def test_a_port_that_was_taken_meanwhile_is_told_once() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = f"tcp://127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(TransportError) as error:
            bind_verify(taken)
    assert str(error.value).startswith(f"cannot bind {taken}: Address already in use; another program listens there")
    assert "choose another port" in str(error.value)


@pytest.mark.parametrize(
    "endpoint",
    ["", "127.0.0.1:5555", "http://127.0.0.1:5555", "ipc:///tmp/x", "tcp://127.0.0.1", "tcp://127.0.0.1:65536",
     "tcp://127.0.0.1:5555/x", "tcp://127.0.0.1:5555\n", "tcp://a b:1", "tcp://[::1:5", "tcp://:5555", "inproc://x"],
)  # fmt: skip
def test_what_is_no_endpoint_is_refused(endpoint: str) -> None:
    for attempt in (lambda: bind_verify(endpoint), lambda: connect_draft(endpoint)):
        with pytest.raises(ConfigError, match="write tcp://HOST:PORT"):
            attempt()


def test_other_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(ConfigError, match="port to connect to"):
        connect_draft("tcp://127.0.0.1:0")
    with pytest.raises(ConfigError, match="--trusted-network"):
        bind_verify("tcp://*:0")
    with pytest.raises(ConfigError, match="not an endpoint"):
        connect_draft("tcp://*:5555", trusted_network=True)
    with pytest.raises(TransportError, match="cannot be resolved"):
        bind_verify("tcp://no.such.host.invalid:5555")


async def test_a_peer_of_an_older_zeromq_protocol_fails_nobody() -> None:
    """Such a peer has no metadata: neither its descriptor nor its key can be asked for."""
    async with network() as net:
        host, _, port = net.verify.endpoint.removeprefix("tcp://").rpartition(":")
        for words in (b"\x01\x00", b"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x01\x05\x00\x00"):  # ZMTP 1, and 2
            with socket.create_connection((host, int(port))) as old:
                old.sendall(words + b"\x02\x00x" * 3 + b"\x01\x00" * 3)
                old.settimeout(0.3)
                with contextlib.suppress(TimeoutError):
                    while old.recv(1000):  # until it hangs up, or has taken what was said
                        pass
                await net.draft().send(ack(1))
                while isinstance((received := await arrival(net.verify)).message, ProtocolError):
                    pass
                assert received.message == ack(1)
