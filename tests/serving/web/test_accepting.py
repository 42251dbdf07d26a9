"""No descriptor is left: one line, little work, and connections again as soon as there is one."""

import asyncio
import logging
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from goodspeed.errors import ConfigError
from goodspeed.serving.starting import USAGE
from goodspeed.serving.web import accepting
from goodspeed.serving.web.accepting import Acceptor
from goodspeed.serving.web.connection_limit import possible_connections
from goodspeed.wire import descriptors
from tests.descriptors import at_most
from tests.listening import listen
from tests.waiting import run_async, until

SCARCE = "cannot accept HTTP connections now"


class Greeting(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"hello")
        transport.close()


def highest() -> int:
    """The descriptor after the highest in use: a limit so low leaves none."""
    with Path(os.devnull).open() as file:
        return file.fileno()


@run_async
async def test_without_descriptors_one_line_and_hardly_any_work(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    num_tries = 0
    rest = Acceptor._pause

    def counted(self: Acceptor, error: OSError) -> None:
        nonlocal num_tries
        num_tries += 1
        rest(self, error)

    monkeypatch.setattr(Acceptor, "_pause", counted)
    monkeypatch.setattr(accepting, "PAUSE_S", 0.05)

    caplog.set_level(logging.INFO)
    with listen() as listener, socket.socket() as client:
        acceptor = Acceptor(listener, Greeting, lambda _: None)
        with at_most(highest()):
            client.connect(listener.getsockname())
            client.setblocking(False)
            await until(lambda: num_tries >= 3)
        assert await asyncio.get_running_loop().sock_recv(client, 100) == b"hello"
        acceptor.close()
    said = [record.getMessage() for record in caplog.records]
    assert [line.split(";")[0] for line in said] == [SCARCE]


@run_async
async def test_a_protocol_that_cannot_be_made_leaves_no_socket(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> asyncio.BaseProtocol:
        raise ValueError("as ordered")

    accepted: list[socket.socket] = []
    with listen() as listener, socket.create_connection(listener.getsockname()):
        acceptor = Acceptor(listener, broken, accepted.append)
        await until(lambda: accepted and not acceptor._connecting)
        assert accepted[0].fileno() == -1
        acceptor.close()
    assert "as ordered" in caplog.text


@pytest.mark.parametrize("num_turns", range(5))
@run_async
async def test_nothing_begins_after_the_end(num_turns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end comes right after a connection was accepted, or some turns of the event loop later."""
    made: dict[asyncio.Protocol, asyncio.BaseTransport] = {}
    accepted: list[socket.socket] = []
    begin = Acceptor._begin

    class Staying(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            made[self] = transport

        def connection_lost(self, exc: Exception | None) -> None:
            del made[self]

    def noted(self: Acceptor, connection: socket.socket) -> None:
        accepted.append(connection)
        begin(self, connection)

    monkeypatch.setattr(Acceptor, "_begin", noted)

    with listen() as listener:
        clients = [socket.create_connection(listener.getsockname()) for _ in range(3)]
        acceptor = Acceptor(listener, Staying, lambda _: None)
        acceptor._accept()
        for _ in range(num_turns):
            await asyncio.sleep(0)
        begun = set(made)
        acceptor.close()
        await until(lambda: not acceptor._connecting)
        await asyncio.sleep(0)  # what is lost is told in the next turn
        left, num_open = set(made), sum(connection.fileno() != -1 for connection in accepted)
        ends: list[socket.socket | asyncio.BaseTransport] = [*clients, *made.values()]
        for end in ends:
            end.close()
        await until(lambda: not made)
        assert left <= begun
        assert num_open == len(left)


def test_fewer_places_where_descriptors_are_scarce(caplog: pytest.LogCaptureFixture) -> None:
    num_open = descriptors.limit() or 0
    num_open -= descriptors.num_free() or 0
    for free, wanted, possible in ((1000, 512, 512), (200, 512, 150), (40, 512, 24), (20, 512, 4), (20, 3, 3)):
        with at_most(num_open + free):
            assert possible_connections(wanted) == possible
    assert "fewer HTTP connections" in caplog.text
    with at_most(num_open + 19), pytest.raises(ConfigError, match=r"at least 1 more \(ulimit -n\)"):
        possible_connections(512)


@pytest.mark.parametrize("command", ["draft_node", "verify_node"])
def test_a_limit_that_is_too_low_is_said_at_the_start(command: str) -> None:
    line = f"ulimit -n {descriptors.LEAST - 1}; exec {sys.executable} -m {command} --model tiny-target"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == USAGE
    assert f"ulimit -n {descriptors.LEAST}" in done.stderr
    assert "Traceback" not in done.stderr
