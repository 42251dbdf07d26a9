"""The bad line by itself, in front of a small server that says everything back."""

import asyncio
import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.faults.proxy import Proxy
from tests.waiting import until

pytestmark = pytest.mark.nodes

TIMEOUT_S = 30  # a wait in vain
SILENCE_S = 0.2  # long enough for bytes that are not held back


class Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        with suppress(ConnectionResetError):
            while data := self.request.recv(1 << 16):
                self.request.sendall(data)


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with Server(("127.0.0.1", 0), Echo) as server:
        thread = threading.Thread(target=lambda: server.serve_forever(0.01))
        thread.start()
        with Proxy(f"tcp://127.0.0.1:{server.server_address[1]}") as proxy:
            yield proxy
        server.shutdown()
        thread.join()


def connect(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=TIMEOUT_S)


def hear(peer: socket.socket, num_bytes: int) -> bytes:
    heard = b""
    while len(heard) < num_bytes:
        data = peer.recv(1 << 16)
        assert data, "the connection ended"
        heard += data
    return heard


def hears_nothing(peer: socket.socket) -> bool:
    peer.settimeout(SILENCE_S)
    try:
        peer.recv(1)
    except TimeoutError:
        return True
    finally:
        peer.settimeout(TIMEOUT_S)
    return False


def is_served(peer: socket.socket) -> bool:
    try:
        peer.sendall(b"?")
        return peer.recv(1) == b"?"
    except OSError:
        return False


def test_what_comes_back_is_as_late_as_it_is_to_be(proxy: Proxy) -> None:
    with connect(proxy) as peer:
        proxy.delay_s = 0.1
        assert seconds_of(peer, 1) >= 0.2
        proxy.delay_s, proxy.bytes_per_s = 0.0, 100_000
        assert seconds_of(peer, 40_000) >= 0.3  # the last chunk is there before it has been waited for


def test_each_fault_is_one_until_it_is_healed(proxy: Proxy) -> None:
    with connect(proxy) as old:
        assert is_served(old)
        proxy.half_open("down")
        before = proxy.num_bytes
        old.sendall(b"heard")
        asyncio.run(asyncio.wait_for(until(lambda: proxy.num_bytes == before + 5), TIMEOUT_S))  # it went up
        assert hears_nothing(old)
        assert proxy.num_bytes == before + 5
        proxy.half_open("up")
        old.sendall(b" not")
        assert hears_nothing(old)
        assert proxy.num_bytes == before + 5
        with connect(proxy) as new:
            assert is_served(new)
            proxy.heal()
            assert hear(old, 9) == b"heard not"
            proxy.blackhole()
            new.sendall(b"later")
            assert hears_nothing(new)
            proxy.heal()
            assert hear(new, 5) == b"later"
            for break_off in (proxy.reset, proxy.cut):
                with connect(proxy) as peer:
                    assert is_served(peer)
                    break_off()
                    with pytest.raises(ConnectionResetError):
                        peer.recv(1)
    with suppress(ConnectionResetError), connect(proxy) as peer:
        assert not is_served(peer)
    proxy.heal()
    for share in ("reset_share", "chunk_reset_share"):
        before, deadline = proxy.num_resets, time.monotonic() + TIMEOUT_S
        setattr(proxy, share, 0.9)
        with connect(proxy) as peer:
            while is_served(peer):
                assert time.monotonic() < deadline
        assert before < proxy.num_resets <= before + 2  # a connection has two directions, and each may be reset
        setattr(proxy, share, 0.0)
    with connect(proxy) as peer:
        assert is_served(peer)
        proxy.close()
        with pytest.raises(ConnectionResetError):
            peer.recv(1)
    with pytest.raises(ConnectionRefusedError):
        connect(proxy)
    assert not any(thread.name == f"proxy-{proxy.port}" for thread in threading.enumerate())


def seconds_of(peer: socket.socket, num_bytes: int) -> float:
    """Seconds until so many bytes have come back, in pieces of 10,000."""
    started = time.monotonic()
    for begin in range(0, num_bytes, 10_000):
        piece = bytes(min(10_000, num_bytes - begin))
        peer.sendall(piece)
        hear(peer, len(piece))
    return time.monotonic() - started
