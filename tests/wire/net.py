"""Channels on loopback for tests, with keys or without, and raw sockets beside them."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import zmq

from goodspeed.wire.channels import DraftChannel, VerifyChannel
from goodspeed.wire.handshake import VERSION, Hello
from goodspeed.wire.keys import KeyPair
from goodspeed.wire.zmq.authentication import ClientKeys, ServerKeys, new_pair
from goodspeed.wire.zmq.opening_channels import bind_verify, connect_draft
from tests.waiting import TIMEOUT_S, arrival

LIMIT = 1 << 16


def hello(name: str) -> Hello:
    return Hello(VERSION, name, b"bootboot", "t")


class Net:
    """A verify channel and the draft channels that a test makes, closed at the end.

    With a key pair the verify channel admits the keys in `enrolled`, and `refused` has those it turned away.
    """

    def __init__(self, pair: KeyPair | None = None) -> None:
        self._pair, self.enrolled, self.refused = pair, set[str](), list[str]()
        keys = None if pair is None else ServerKeys(pair, self._admits)
        self.verify = bind_verify("tcp://127.0.0.1:0", max_message_bytes=LIMIT, keys=keys)
        self.channels: list[DraftChannel | VerifyChannel] = [self.verify]

    @property
    def pair(self) -> KeyPair:
        """The verify node's keys."""
        assert self._pair is not None
        return self._pair

    def _admits(self, key: str) -> bool:
        if key not in self.enrolled:
            self.refused.append(key)
        return key in self.enrolled

    def enrol(self, name: str) -> KeyPair:
        pair = new_pair(name)
        self.enrolled.add(pair.public_key)
        return pair

    def draft(self, pair: KeyPair | None = None, *, verify_key=None, endpoint=None) -> DraftChannel:
        keys = ClientKeys(pair, verify_key or self.pair.public_key) if pair is not None else None
        channel = connect_draft(endpoint or self.verify.endpoint, max_message_bytes=LIMIT, keys=keys)
        self.channels.append(channel)
        return channel

    async def greeted(self, name: str) -> tuple[DraftChannel, bytes]:
        """A draft channel that has said hello, and its name at the verify node."""
        draft = self.draft()
        await draft.send(hello(name))
        return draft, (await arrival(self.verify)).peer


@asynccontextmanager
async def network(pair: KeyPair | None = None) -> AsyncIterator[Net]:
    net = Net(pair)
    try:
        yield net
    finally:
        for channel in reversed(net.channels):
            channel.close()


@contextmanager
def raw_socket(endpoint: str, kind: int = zmq.DEALER, /, **options: Any) -> Iterator["zmq.Socket[bytes]"]:
    """A peer that does not play by our rules."""
    with zmq.Context() as context, context.socket(kind) as peer:
        peer.linger = 0
        peer.rcvtimeo = TIMEOUT_S * 1000
        for option, value in options.items():
            setattr(peer, option, value)
        peer.connect(endpoint)
        yield peer


@contextmanager
def monitored(peer: "zmq.Socket[bytes]", events: int = zmq.EVENT_ALL) -> Iterator["zmq.Socket[bytes]"]:
    """A socket on which ZeroMQ tells what becomes of a peer's connection from now on."""
    with peer.get_monitor_socket(events) as monitor:
        monitor.rcvtimeo = TIMEOUT_S * 1000
        try:
            yield monitor
        finally:
            peer.disable_monitor()


def curve(pair: KeyPair, verify_key: str) -> dict[str, bytes]:
    values = {"publickey": pair.public_key, "secretkey": pair.secret_key, "serverkey": verify_key}
    return {f"curve_{name}": key.encode() for name, key in values.items()}
