"""A TCP proxy that makes a line longer: what goes in comes out again, in order, so many seconds later.

For measurements on one machine. Knows nothing about what it carries. Each direction of each connection keeps its bytes
with the time at which they are due, so a delay holds nobody up: bandwidth is that of the machine.
"""

import asyncio
from types import TracebackType

CHUNK_BYTES = 1 << 16


class DelayProxy:
    """`async with DelayProxy(target_port, delay_s) as proxy:` and connect to `proxy.port`."""

    def __init__(self, target_port: int, delay_s: float, host: str = "127.0.0.1") -> None:
        """delay_s: each way; the round trip is twice as long. It may be changed while bytes flow."""
        self.target_port = target_port
        self.delay_s = delay_s
        self.host = host
        self.port = 0  # known once it serves
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "DelayProxy":
        self._server = await asyncio.start_server(self._accept, self.host, 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
        self.cut()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def cut(self) -> None:
        """Closes every connection; new ones are accepted."""
        for connection in self._connections:
            connection.cancel()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.create_task(self._connect(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Both directions, until one of them ends."""
        writers = [writer]
        try:
            far_reader, far_writer = await asyncio.open_connection(self.host, self.target_port)
            writers.append(far_writer)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._carry(reader, far_writer))
                tasks.create_task(self._carry(far_reader, writer))
        except* OSError:
            pass  # an end went away: so does the other, below
        finally:
            for each in writers:
                each.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One direction: bytes wait in a queue until they are due; none at all is the end."""
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        delivering = asyncio.create_task(self._deliver(waiting, writer))
        try:
            clock = asyncio.get_running_loop().time
            while data := await reader.read(CHUNK_BYTES):
                waiting.put_nowait((clock() + self.delay_s, data))
            waiting.put_nowait((clock() + self.delay_s, b""))
            await delivering
        finally:
            delivering.cancel()
        raise ConnectionError("closed by its end")

    @staticmethod
    async def _deliver(waiting: "asyncio.Queue[tuple[float, bytes]]", writer: asyncio.StreamWriter) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            due, data = await waiting.get()
            if (seconds := due - clock()) > 0:
                await asyncio.sleep(seconds)
            if not data:
                return
            writer.write(data)
            await writer.drain()
