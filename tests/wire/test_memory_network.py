"""The network in memory: faults happen exactly as a test wants them, and the same way again."""

import asyncio
from collections.abc import Iterable

import pytest

from goodspeed.errors import MalformedMessage, TransportError
from goodspeed.wire.codec import encode
from goodspeed.wire.handshake import VERSION, Heartbeat, Hello
from goodspeed.wire.messages import Ack
from goodspeed.wire.zmq.transport import Delivery, Faults, MemoryNetwork, Packet, VerifyChannel, peer_name

PEER = peer_name(b"a")
HELLO = Hello(version=VERSION, name="edge-1", boot_id=b"bootboot", tokenizer="t")


def ack(base_len: int) -> Ack:
    return Ack(session_id=bytes(16), epoch=1, base_len=base_len)


def arrived(verify: VerifyChannel) -> list[int]:
    """The numbers of the acks that are there."""
    return [entry.message.base_len for entry in verify.receive_ready() if isinstance(entry.message, Ack)]


def send_all(network: MemoryNetwork, numbers: Iterable[int]) -> list[int]:
    """Sends numbered acks over the network, and what of them arrives, in its order."""

    async def run() -> list[int]:
        verify, draft = network.bind_verify(), network.connect_draft(b"a")
        for number in numbers:
            await draft.send(ack(number))
        return arrived(verify)

    return asyncio.run(run())


def number_of(packet: Packet) -> int:
    return packet.data[-1]


def test_without_faults_all_arrives_in_order() -> None:
    assert send_all(MemoryNetwork(), range(100)) == list(range(100))


def test_a_fate_loses_repeats_and_reorders() -> None:
    held: list[Packet] = []

    def fate(packet: Packet) -> list[Packet]:
        match number_of(packet):
            case 1:
                return []
            case 2:
                return [packet, packet]
            case 3:
                held.append(packet)
                return []
            case 5:
                return [packet, *held]
        return [packet]

    assert send_all(MemoryNetwork(fate), range(7)) == [0, 2, 2, 4, 5, 3, 6]


def test_a_fate_sees_direction_and_peer() -> None:
    seen: list[tuple[str, bytes]] = []

    def fate(packet: Packet) -> list[Packet]:
        seen.append((packet.direction, packet.peer))
        return [packet] if packet.direction == "up" else []

    network = MemoryNetwork(fate)
    verify, draft = network.bind_verify(), network.connect_draft(b"a")
    asyncio.run(draft.send(HELLO))
    assert verify.receive_ready()[0].peer == PEER
    assert verify.send(PEER, Heartbeat(b"bootboot")) is Delivery.SENT  # lost on the way, which no sender can know
    assert draft.receive_ready() == []
    assert seen == [("up", PEER), ("down", PEER)]


def test_the_fate_may_change_and_packets_be_delivered_later() -> None:
    network = MemoryNetwork()
    verify, draft = network.bind_verify(), network.connect_draft(b"a")
    held: list[Packet] = []
    network.fate = lambda packet: held.append(packet) or []  # type: ignore[func-returns-value]
    asyncio.run(draft.send(ack(1)))
    assert arrived(verify) == []
    for packet in held:
        network.deliver(packet)
    assert arrived(verify) == [1]


def test_bytes_pass_through_the_codec() -> None:
    network = MemoryNetwork(lambda packet: [packet._replace(data=packet.data[:-1])])
    verify, draft = network.bind_verify(), network.connect_draft(b"a")
    asyncio.run(draft.send(ack(1)))
    [received] = verify.receive_ready()
    assert isinstance(received.message, MalformedMessage)
    assert received.num_bytes == len(encode(ack(1), 1000)) - 1
    verify.send(PEER, Heartbeat(b"bootboot"))
    with pytest.raises(MalformedMessage):
        asyncio.run(draft.receive())


def test_faults_are_the_same_for_one_seed() -> None:
    faults = [Faults(seed, lose=0.2, repeat=0.2, delay=0.2) for seed in (1, 1, 2)]
    outcomes = [send_all(MemoryNetwork(each), range(100)) for each in faults]
    assert outcomes[0] == outcomes[1] != outcomes[2]


def test_faults_are_counted_and_nothing_else_happens() -> None:
    faults = Faults(3, lose=0.1, repeat=0.2, delay=0.3, max_behind=5)
    outcome = send_all(MemoryNetwork(faults), range(128))
    assert min(faults.num_lost, faults.num_repeated, faults.num_delayed) > 0
    num_held = 128 - faults.num_lost - len(set(outcome))  # delayed, and nothing came after to push them on
    assert 0 <= num_held <= 5
    assert len(outcome) == 128 - faults.num_lost - num_held + faults.num_repeated
    assert outcome != sorted(outcome)
    for place, number in enumerate(outcome):  # nobody is more than max_behind later sends late
        assert all(number > earlier - 6 for earlier in outcome[:place])


def test_certain_faults() -> None:
    assert send_all(MemoryNetwork(Faults(0, lose=1.0)), range(10)) == []
    assert send_all(MemoryNetwork(Faults(0, repeat=1.0)), range(3)) == [0, 0, 1, 1, 2, 2]
    assert send_all(MemoryNetwork(Faults(0, delay=1.0, max_behind=1)), range(4)) == [0, 1, 2]


def test_a_full_queue_is_busy_until_it_is_read() -> None:
    network = MemoryNetwork(max_queued=2)
    verify, draft = network.bind_verify(), network.connect_draft(b"a", send_timeout_s=60)
    impatient = network.connect_draft(b"b", send_timeout_s=0.01)
    outcomes = [verify.send(PEER, Heartbeat(b"bootboot")) for _ in range(3)]
    assert outcomes == [Delivery.SENT, Delivery.SENT, Delivery.BUSY]
    assert len(draft.receive_ready()) == 2
    assert verify.send(PEER, Heartbeat(b"bootboot")) is Delivery.SENT

    async def fill() -> None:
        await draft.send(ack(1))
        await draft.send(ack(2))
        blocked = asyncio.create_task(draft.send(ack(3)))
        await asyncio.sleep(0)
        assert not blocked.done()
        assert arrived(verify) == [1, 2]
        await blocked
        await draft.send(ack(4))
        with pytest.raises(TransportError, match="taken no message"):
            await impatient.send(ack(5))

    asyncio.run(fill())
    assert arrived(verify) == [3, 4]


def test_a_verify_node_that_starts_again_finds_nothing() -> None:
    network = MemoryNetwork()
    first, draft = network.bind_verify(), network.connect_draft(b"a")
    asyncio.run(draft.send(ack(1)))
    first.close()
    asyncio.run(draft.send(ack(2)))  # into nothing: no draft node can know
    second = network.bind_verify()
    asyncio.run(draft.send(ack(3)))
    assert arrived(second) == [3]
    assert second.send(PEER, Heartbeat(b"bootboot")) is Delivery.SENT
    assert draft.receive_ready() == [Heartbeat(b"bootboot")]


def test_a_channel_that_was_replaced_closes_without_harm() -> None:
    network = MemoryNetwork()
    verify = network.bind_verify()
    first, second = network.connect_draft(b"a"), network.connect_draft(b"a")
    first.close()
    assert verify.send(PEER, Heartbeat(b"bootboot")) is Delivery.SENT
    assert second.receive_ready() == [Heartbeat(b"bootboot")]
