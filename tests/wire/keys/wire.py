"""Keyed channels on loopback for tests, and raw sockets beside them."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import zmq

from goodspeed.wire.channels import DraftChannel, VerifyChannel
from goodspeed.wire.handshake import VERSION, Hello
from goodspeed.wire.keys import KeyPair
from goodspeed.wire.zmq.authentication import ClientKeys, ServerKeys, new_pair
from goodspeed.wire.zmq.opening_channels import bind_verify, connect_draft
from tests.waiting import TIMEOUT_S


def hello(name: str) -> Hello:
    return Hello(VERSION, name, b"bootboot", "t")


@dataclass
class KeyedNet:
    """A verify channel that admits the keys in `enrolled`, and counts whom it turned away."""

    pair: KeyPair = field(default_factory=new_pair)
    enrolled: set[str] = field(default_factory=set)
    refused: list[str] = field(default_factory=list)
    channels: list[DraftChannel | VerifyChannel] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.verify = bind_verify("tcp://127.0.0.1:0", keys=ServerKeys(self.pair, self._admits))
        self.channels.append(self.verify)

    def _admits(self, key: str) -> bool:
        if key not in self.enrolled:
            self.refused.append(key)
        return key in self.enrolled

    def enrol(self, name: str) -> KeyPair:
        pair = new_pair(name)
        self.enrolled.add(pair.public_key)
        return pair

    def draft(
        self, pair: KeyPair | None, *, verify_key: str | None = None, endpoint: str | None = None
    ) -> DraftChannel:
        keys = ClientKeys(pair, verify_key or self.pair.public_key) if pair is not None else None
        channel = connect_draft(endpoint or self.verify.endpoint, keys=keys)
        self.channels.append(channel)
        return channel


@asynccontextmanager
async def keyed() -> AsyncIterator[KeyedNet]:
    net = KeyedNet()
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


def curve(pair: KeyPair, verify_key: str) -> dict[str, bytes]:
    return {
        "curve_publickey": pair.public_key.encode(),
        "curve_secretkey": pair.secret_key.encode(),
        "curve_serverkey": verify_key.encode(),
    }
