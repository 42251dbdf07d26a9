"""Real sockets with keys: who gets in, whose word each message is, and what those learn who do not get in."""

import asyncio
from contextlib import suppress

import pytest
import zmq

from goodspeed.wire.channels import Delivery
from goodspeed.wire.messages import Refusal
from goodspeed.wire.zmq.authentication import ServerKeys, new_pair
from goodspeed.wire.zmq.opening_channels import bind_verify
from tests.faults.proxy import Proxy
from tests.waiting import arrival, until
from tests.wire.net import Net, curve, hello, monitored, network, raw_socket

pytestmark = pytest.mark.nodes


async def honest(net: Net) -> None:
    """Somebody who is enrolled still gets in and is answered; nobody else was heard meanwhile."""
    num_before = net.verify.traffic.num_received
    pair = net.enrol("honest")
    draft = net.draft(pair)
    await draft.send(hello("honest"))
    received = await arrival(net.verify)
    assert (received.message, received.principal) == (hello("honest"), pair.public_key)
    assert net.verify.send(received.peer, Refusal("draining", "x", "y")) is Delivery.SENT
    assert await draft.receive() == Refusal("draining", "x", "y")
    assert net.verify.traffic.num_received == num_before + 1


async def failure_of(net: Net, **options: object) -> str:
    """Returns why a draft channel could not connect; nothing of it reaches the verify node."""
    draft = net.draft(**options)  # type: ignore[arg-type]
    net.verify.transport._zap.open()  # type: ignore[attr-defined]
    why: str = await until(draft.transport.failure)
    assert list(net.verify.arriving()) == []
    return why


async def test_everybody_is_known_by_the_key() -> None:
    async with network(new_pair()) as net:
        pairs = [net.enrol(name) for name in ("a", "b")]
        for pair in pairs:
            await net.draft(pair).send(hello(pair.name or ""))
        heard = [await arrival(net.verify) for _ in pairs]
        known = {(pair.public_key, hello(pair.name or "")) for pair in pairs}
        assert {(one.principal, one.message) for one in heard} == known
        assert len({one.peer for one in heard}) == 2, "two of one identity: the name is not theirs to choose"


@pytest.mark.parametrize(
    ("is_enrolled", "verify_key", "said"),
    [
        (False, None, "ZAP 400): copy somebody.pub into"),
        (None, None, "give --key and --verify-key"),
        (True, new_pair().public_key, "--verify-key is not that verify node's"),
    ],
    ids=["not enrolled", "no key", "wrong verify key"],
)
async def test_who_does_not_get_in_learns_why(is_enrolled: bool | None, verify_key: str | None, said: str) -> None:
    async with network(new_pair()) as net:
        pair = net.enrol("somebody") if is_enrolled else new_pair("somebody")
        why = await failure_of(net, pair=None if is_enrolled is None else pair, verify_key=verify_key)
        assert said in why
        assert set(net.refused) == ({pair.public_key} if is_enrolled is False else set())
        await honest(net)


async def test_a_key_at_a_verify_node_that_has_none() -> None:
    verify = bind_verify("tcp://127.0.0.1:0")
    async with network(new_pair()) as net:
        draft = net.draft(net.enrol("a"), endpoint=verify.endpoint)
        assert "that node has no --key" in await until(draft.transport.failure)
        assert list(verify.arriving()) == []
        verify.close()


async def test_anothers_public_key_without_its_secret() -> None:
    """ZeroMQ's client would not notice that its halves do not fit: the verify node does."""
    async with network(new_pair()) as net:
        victim, thief = net.enrol("victim"), new_pair("thief")
        options = curve(thief, net.pair.public_key) | {"curve_publickey": victim.public_key.encode()}
        assert await is_shut_out(net, **options)
        await honest(net)


async def test_plain_and_null_are_not_spoken() -> None:
    async with network(new_pair()) as net:
        assert await is_shut_out(net, plain_username=b"admin", plain_password=b"admin")
        assert await is_shut_out(net)
        await honest(net)


async def is_shut_out(net: Net, **options: bytes) -> bool:
    """True if the handshake of a raw socket with these options fails, and nothing arrives from it."""
    net.verify.transport._zap.open()  # type: ignore[attr-defined]
    failures = zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    with zmq.Context() as context, context.socket(zmq.DEALER) as peer:
        peer.linger = 0
        for option, value in options.items():
            setattr(peer, option, value)
        with monitored(peer, failures | zmq.EVENT_HANDSHAKE_SUCCEEDED) as monitor:
            peer.connect(net.verify.endpoint)
            peer.send(b"anything")
            event = await next_event(monitor)
    return bool(event & failures) and list(net.verify.arriving()) == []


def receive(socket: "zmq.Socket[bytes]") -> list[bytes] | None:
    return socket.recv_multipart(zmq.NOBLOCK) if socket.poll(0) else None


async def next_event(monitor: "zmq.Socket[bytes]") -> int:
    return int.from_bytes((await until(lambda: receive(monitor)))[0][:2], "little")


async def test_curve_is_closed_while_nobody_answers_for_it() -> None:
    """ZeroMQ without a ZAP handler would accept any key; this connection waits until a handler accepts its key."""
    async with network(new_pair()) as net:
        net.verify.transport._zap.close()  # type: ignore[attr-defined]
        options = curve(net.enrol("a"), net.pair.public_key)
        watched = zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED
        with raw_socket(net.verify.endpoint, **options) as peer, monitored(peer, watched) as monitor:
            assert await next_event(monitor) == zmq.EVENT_DISCONNECTED
        assert list(net.verify.arriving()) == []


async def test_an_identity_cannot_be_taken_by_a_second_enrolled_key() -> None:
    """A message by a connection's name reaches that connection, whoever else claims the name."""
    async with network(new_pair()) as net:
        victim, thief = net.enrol("victim"), net.enrol("thief")
        name = {"routing_id": b"victim"}
        with raw_socket(net.verify.endpoint, **curve(victim, net.pair.public_key), **name) as first:
            first.send(b"\xc1")
            assert (await arrival(net.verify)).principal == victim.public_key
            with raw_socket(net.verify.endpoint, **curve(thief, net.pair.public_key), **name) as second:
                with monitored(second, zmq.EVENT_HANDSHAKE_SUCCEEDED) as monitor:
                    await next_event(monitor)
                for _ in range(3):
                    second.send(b"\xc1")
                await honest(net)  # so the verify node has seen the second one, and all that it said before
                for number in range(20):
                    assert net.verify.send(b"victim", Refusal("failed", str(number), "")) is Delivery.SENT
                first.send(b"\xc1")
                heard = await arrival(net.verify)
                while heard.principal == thief.public_key:  # by whatever name, it is known by its key
                    assert heard.peer != b"victim"
                    heard = await arrival(net.verify)
                assert (heard.peer, heard.principal) == (b"victim", victim.public_key)
                got = [await until(lambda: receive(first)) for _ in range(20)]
                assert len(got) == 20
                assert not second.poll(0)


async def test_a_recorded_connection_cannot_be_replayed() -> None:
    async with network(new_pair()) as net:
        with Proxy(net.verify.endpoint) as line:
            line.recorded = bytearray()
            draft = net.draft(net.enrol("a"), endpoint=line.endpoint)
            for name in ("a", "b", "c"):
                await draft.send(hello(name))
                assert (await arrival(net.verify)).message == hello(name)
        assert len(line.recorded) > 200
        assert b"bootboot" not in line.recorded, "it is encrypted"
        for _ in range(3):
            reader, writer = await asyncio.open_connection("127.0.0.1", int(net.verify.endpoint.rpartition(":")[2]))
            writer.write(line.recorded)
            with suppress(ConnectionResetError):
                await reader.read()  # until the verify node hangs up
            writer.close()
        assert list(net.verify.arriving()) == []
        await honest(net)


async def test_who_is_enrolled_later_gets_in_on_another_connection() -> None:
    async with network(new_pair()) as net:
        late = new_pair("late")
        draft = net.draft(late)
        net.verify.transport._zap.open()  # type: ignore[attr-defined]
        for _ in range(3):
            assert "ZAP 400" in await until(draft.transport.failure)
            draft.transport.rebuild()
        assert "ZAP 400" in await until(draft.transport.failure)
        net.enrolled.add(late.public_key)
        draft.transport.rebuild()
        await draft.send(hello("late"))
        assert (await arrival(net.verify)).principal == late.public_key
        assert draft.transport.failure() is None


async def test_a_zap_that_fails_lets_nobody_in_and_goes_on() -> None:
    async with network(new_pair()) as net:
        stranger = new_pair("stranger")
        net.enrolled = None  # type: ignore[assignment]
        assert "ZAP 400" in await failure_of(net, pair=stranger)
        net.enrolled = set()
        await honest(net)


def test_with_keys_beyond_loopback_is_allowed() -> None:
    bind_verify("tcp://0.0.0.0:0", keys=ServerKeys(new_pair(), bool)).close()
