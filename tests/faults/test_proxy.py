"""The bad line by itself, in front of a small server that says everything back."""

import random
import socket
import socketserver
import threading
import time
from collections.abc import Iterator

import pytest

from tests.faults.proxy import Proxy

pytestmark = pytest.mark.alone

TIMEOUT_S = 30  # a wait in vain
SILENCE_S = 0.2  # long enough for bytes that are not held back


class Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        try:
            while data := self.request.recv(1 << 16):
                self.request.sendall(data)
        except ConnectionResetError:
            pass


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


def is_turned_away(proxy: Proxy) -> bool:
    """Tells if the connection ends at once or with the first word."""
    try:
        with connect(proxy) as peer:
            return not is_served(peer)
    except ConnectionResetError:
        return True


def test_everything_comes_back_in_order_whatever_the_jitter(proxy: Proxy) -> None:
    said = random.Random(0).randbytes(3_000_000)  # more than the line takes at once
    proxy.jitter_s = 0.005
    with connect(proxy) as peer:
        thread = threading.Thread(target=lambda: peer.sendall(said))
        thread.start()
        assert hear(peer, len(said)) == said
        thread.join()
    assert proxy.num_connections == 1
    assert proxy.num_bytes == 2 * len(said)


def test_a_delay_is_on_both_ways(proxy: Proxy) -> None:
    with connect(proxy) as peer:
        proxy.delay_s = 0.1
        started = time.monotonic()
        peer.sendall(b"x")
        hear(peer, 1)
        assert time.monotonic() - started >= 0.2
        proxy.delay_s = 0.0
        peer.sendall(b"y")
        assert hear(peer, 1) == b"y"


def test_a_throttle_takes_its_time(proxy: Proxy) -> None:
    proxy.bytes_per_s = 100_000
    with connect(proxy) as peer:
        started = time.monotonic()
        for _ in range(4):
            peer.sendall(bytes(10_000))
            hear(peer, 10_000)
        assert time.monotonic() - started >= 0.3  # the last chunk is there before it has been waited for


def test_a_cut_resets_and_turns_away_until_it_is_healed(proxy: Proxy) -> None:
    with connect(proxy) as peer:
        assert is_served(peer)
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            peer.recv(1)
    assert is_turned_away(proxy)
    proxy.heal()
    with connect(proxy) as peer:
        assert is_served(peer)
        proxy.reset()
        with pytest.raises(ConnectionResetError):
            peer.recv(1)
    with connect(proxy) as peer:
        assert is_served(peer)


def test_a_blackhole_keeps_connections_and_what_they_said(proxy: Proxy) -> None:
    with connect(proxy) as old:
        assert is_served(old)
        proxy.blackhole()
        old.sendall(b"later")
        with connect(proxy) as new:
            new.sendall(b"me too")
            assert hears_nothing(old)
            assert hears_nothing(new)
            proxy.heal()
            assert hear(old, 5) == b"later"
            assert hear(new, 6) == b"me too"


def test_half_of_a_connection_goes_dead_and_new_ones_are_whole(proxy: Proxy) -> None:
    with connect(proxy) as old:
        assert is_served(old)
        proxy.half_open("down")
        before = proxy.num_bytes
        old.sendall(b"heard")
        assert hears_nothing(old)
        assert proxy.num_bytes == before + 5  # it went up
        with connect(proxy) as new:
            assert is_served(new)
        proxy.half_open("up")
        old.sendall(b" and not")
        assert hears_nothing(old)
        assert proxy.num_bytes == before + 7
        proxy.heal()
        assert hear(old, 13) == b"heard and not"


@pytest.mark.parametrize("share", ["reset_share", "chunk_reset_share"])
def test_connections_are_reset_at_random(proxy: Proxy, share: str) -> None:
    setattr(proxy, share, 0.9)
    deadline = time.monotonic() + TIMEOUT_S
    with connect(proxy) as peer:
        while is_served(peer):
            assert time.monotonic() < deadline
    assert proxy.num_resets == 1
    setattr(proxy, share, 0.0)
    with connect(proxy) as peer:
        assert is_served(peer)


def test_an_end_that_goes_is_gone_at_the_other_end_and_nobody_listens_is_a_reset() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(TIMEOUT_S)
        with Proxy(f"tcp://127.0.0.1:{server.getsockname()[1]}") as proxy:
            with connect(proxy) as peer:
                there, _ = server.accept()
                with there:
                    peer.sendall(b"bye")
                    peer.close()
                    assert hear(there, 3) == b"bye"
                    assert there.recv(1) == b""
            server.close()
            assert is_turned_away(proxy)


def test_it_leaves_nothing_behind(proxy: Proxy) -> None:
    with connect(proxy) as peer:
        assert is_served(peer)
        proxy.blackhole()
        proxy.close()
        with pytest.raises(ConnectionResetError):
            peer.recv(1)
    with pytest.raises(ConnectionRefusedError):
        connect(proxy)
    assert not any(thread.name == f"proxy-{proxy.port}" for thread in threading.enumerate())
