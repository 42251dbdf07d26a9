"""No descriptor is left: one line, little work, and connections again as soon as there is one."""

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from goodspeed.errors import ConfigError
from goodspeed.serving.starting import USAGE
from goodspeed.serving.web import connection, server
from goodspeed.serving.web.connection_limit import possible_connections
from goodspeed.wire import descriptors
from tests.descriptors import at_most
from tests.serving.web.serving import hello, serving
from tests.waiting import until


def highest() -> int:
    """The descriptor after the highest in use: a limit so low leaves none."""
    with Path(os.devnull).open() as file:
        return file.fileno()


async def test_without_descriptors_one_line_and_hardly_any_work(caplog, monkeypatch) -> None:
    tries: list[dict[str, Any]] = []
    handle = server._LoopErrors.__call__

    def counted(self: server._LoopErrors, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        tries.append(context)
        handle(self, loop, context)

    monkeypatch.setattr(server._LoopErrors, "__call__", counted)
    monkeypatch.setattr("asyncio.constants.ACCEPT_RETRY_DELAY", 0.05)
    loop = asyncio.get_running_loop()
    with socket.socket() as client:
        client.setblocking(False)
        async with serving(hello) as address:
            await asyncio.sleep(0)
            with at_most(highest()):
                await loop.sock_connect(client, address)
                await until(lambda: len(tries) >= 2 * server.MAX_ACCEPTED)
            await loop.sock_sendall(client, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await loop.sock_recv(client, 100)).startswith(b"HTTP/1.1 200 ")
    told = [record.getMessage() for record in caplog.records if record.name == server.logger.name]
    assert [line.split(";")[0] for line in told] == [
        "cannot accept HTTP connections now"
    ]  # asyncio's own are of retries after the server's end


async def test_few_connections_are_accepted_in_a_turn_of_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """All others wait in the system's queue, which is longer."""
    num_made: list[int] = []

    class Counting(connection.Connection):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            num_made[-1] += 1

    monkeypatch.setattr(server, "Connection", Counting)
    async with serving(hello) as address:
        clients = []
        for num_clients in (1, 100):  # the first one says that the server has started
            clients += [socket.create_connection(address, timeout=30) for _ in range(num_clients)]
            while sum(num_made) < len(clients):
                num_made.append(0)
                await asyncio.sleep(0)
        for client in clients:
            client.close()
    assert max(num_made) <= server.MAX_ACCEPTED


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
