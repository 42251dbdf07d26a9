"""Keyed channels on loopback for tests, raw sockets beside them, and a proxy that records what goes through."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import zmq

from goodspeed.wire.handshake import VERSION, Hello
from goodspeed.wire.keys import KeyPair
from goodspeed.wire.zmq.authentication import ClientKeys, ServerKeys, new_pair
from goodspeed.wire.zmq.transport import DraftChannel, VerifyChannel, bind_verify, connect_draft
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


class Tape:
    """A TCP proxy that keeps what the first connection said upwards."""

    def __init__(self, endpoint: str) -> None:
        self.port = int(endpoint.rpartition(":")[2])
        self.recorded = b""
        self.endpoint = ""
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> "Tape":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.endpoint = f"tcp://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Every connection; the next ones are served again."""
        for writer in self._writers:
            writer.close()
        self._writers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self.port)
        self._writers += [writer, back]
        for coroutine in (self._pass(reader, back, keep=True), self._pass(there, writer, keep=False)):
            self._tasks.add(asyncio.create_task(coroutine))

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, keep: bool) -> None:
        while data := await source.read(1 << 16):
            if keep:
                self.recorded += data
            sink.write(data)
        sink.close()

    async def replay(self) -> None:
        """Says the same again to the verify node, and returns when that has hung up."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(self.recorded)
            await reader.read()  # to the end
        except ConnectionResetError:
            pass
        finally:
            writer.close()
