"""A TCP proxy that is a bad line: slow, narrow, cut, silent, or dead in one direction; it knows not what it carries.

    with Proxy("tcp://127.0.0.1:5555") as proxy:
        connect_to(proxy.endpoint)
        proxy.delay_s = 0.15
        proxy.cut()

It lives in a thread with an event loop of its own, so that code without one can use it. What is delivered is delivered
in order and as it was: as with TCP itself, bytes that the line holds back come later, or their connection ends. An end
that closes its connection closes it at the other end too, after what it sent before.
"""

import asyncio
import random
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

CHUNK_BYTES = 1 << 14
MAX_WAITING_BYTES = 1 << 20  # of one direction of one connection: beyond it the sender is held up, as by a full line
TICK_S = 0.05  # between two random resets
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends an RST

Direction = Literal["up", "down"]  # up is from who connected to the target


class Proxy:
    """One address that leads to another. The plain attributes may be set at any moment, from any thread."""

    def __init__(self, target: str, *, seed: int = 0) -> None:
        """target: `tcp://HOST:PORT`, or `http://...`; seed: of jitter and resets."""
        self.delay_s = 0.0  # each way
        self.jitter_s = 0.0  # at most so much more, at random; order is kept
        self.bytes_per_s: float | None = None  # of each direction of each connection; None: as fast as it goes
        self.reset_share = 0.0  # probability per second that a connection is reset
        self.chunk_reset_share = 0.0  # probability that a chunk (about a message) resets its connection instead
        self.num_connections = 0  # that came in so far
        self.num_resets = 0  # at random
        self.num_bytes = 0  # delivered, both ways
        self.recorded: bytearray | None = None  # what is delivered upwards, unless None
        host, _, port = target.partition("://")[2].rstrip("/").rpartition(":")
        self._target = (host, int(port))
        self._random = random.Random(seed)
        self._connections: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()  # one for each of them
        self._is_cut = False
        self._is_silent = False
        self._loop = asyncio.new_event_loop()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port: int = self._listener.getsockname()[1]
        self.endpoint = f"tcp://127.0.0.1:{self.port}"
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"proxy-{self.port}", daemon=True)
        self._thread.start()
        self._started.wait()

    def __enter__(self) -> "Proxy":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def cut(self) -> None:
        """Resets every connection; new ones are reset too, until `heal`."""
        self._do(self._cut)

    def reset(self) -> None:
        """Resets every connection; new ones are served."""
        self._do(self._reset_all)

    def blackhole(self) -> None:
        """Nothing comes through any more, either way, not even that an end closed; connections stay.

        What is sent meanwhile arrives after `heal`, as TCP would send it again, where the connection still stands.
        """
        self._do(self._silence)

    def half_open(self, dead: Direction = "up") -> None:
        """Lets one direction of every open connection go dead; the other stays, and new connections are whole."""
        self._do(lambda: self._kill_direction(dead))

    def heal(self) -> None:
        """Ends `cut`, `blackhole` and `half_open`; plain attributes stay as they are."""
        self._do(self._heal)

    def close(self) -> None:
        """Resets what stands, and ends the thread."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._serving.cancel)
            self._thread.join()

    # -- in the thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        self._serving = self._loop.create_task(self._serve())
        with suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._serving)
        self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._accept, sock=self._listener)
        self._started.set()
        try:
            while True:
                await asyncio.sleep(TICK_S)
                self._reset_some()
        finally:
            server.close()
            self._reset_all()
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _do(self, what: Callable[[], None]) -> None:
        """Calls `what` in the loop, and returns when it is done."""

        async def do() -> None:
            what()

        asyncio.run_coroutine_threadsafe(do(), self._loop).result()

    def _cut(self) -> None:
        self._is_cut = True
        self._reset_all()

    def _silence(self) -> None:
        self._is_silent = True
        for connection in self._connections:
            for lane in connection.lanes.values():
                lane.passes.clear()

    def _kill_direction(self, dead: Direction) -> None:
        for connection in self._connections:
            connection.lanes[dead].passes.clear()

    def _heal(self) -> None:
        self._is_cut = self._is_silent = False
        for connection in self._connections:
            for lane in connection.lanes.values():
                lane.passes.set()

    def _reset_all(self) -> None:
        for connection in self._connections:
            connection.reset()

    def _reset_some(self) -> None:
        for connection in self._connections:
            probability = 1 - (1 - self.reset_share) ** TICK_S
            if not connection.is_reset.is_set() and self._random.random() < probability:
                self.num_resets += 1
                connection.reset()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A task of our own: asyncio complains about one of its own that is cancelled."""
        self.num_connections += 1
        task = self._loop.create_task(self._connect(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection([writer])
        self._connections.add(connection)
        try:
            if self._is_cut:
                connection.reset()
                return
            if self._is_silent:
                connection.lanes["up"].passes.clear()
                connection.lanes["down"].passes.clear()
            far_reader, far_writer = await asyncio.open_connection(*self._target)
            connection.writers.append(far_writer)
            await self._carry_both_ways(connection, (reader, far_writer), (far_reader, writer))
        except OSError:
            connection.reset()  # the target is not there: as if this were its address
        finally:
            connection.close()
            self._connections.discard(connection)

    async def _carry_both_ways(self, connection: "_Connection", up: "_Ends", down: "_Ends") -> None:
        """Carries data until one of the directions has come to its end, or the connection is reset."""
        carrying = [
            asyncio.create_task(self._read(up[0], connection.lanes["up"])),
            asyncio.create_task(self._read(down[0], connection.lanes["down"])),
        ]
        ending = [
            asyncio.create_task(self._deliver(connection, connection.lanes["up"], up[1])),
            asyncio.create_task(self._deliver(connection, connection.lanes["down"], down[1])),
            asyncio.create_task(connection.is_reset.wait()),
        ]
        try:
            await asyncio.wait(ending, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in carrying + ending:
                task.cancel()
            await asyncio.gather(*carrying, *ending, return_exceptions=True)

    async def _read(self, reader: asyncio.StreamReader, lane: "_Lane") -> None:
        """Everything of one direction with the time at which it is due; nothing at all is the end."""
        clock, due = self._loop.time, 0.0
        while True:
            try:
                data = await reader.read(CHUNK_BYTES)
            except OSError:
                data = b""
            due = max(due, clock() + self.delay_s + self.jitter_s * self._random.random())
            lane.put(due, data)
            if not data:
                return
            await lane.has_room.wait()

    async def _deliver(self, connection: "_Connection", lane: "_Lane", writer: asyncio.StreamWriter) -> None:
        """Delivers until the end; tells the other end of a hang-up as if the line had been read to its end."""
        while True:
            due, data = await lane.get()
            await asyncio.sleep(max(0.0, due - self._loop.time()))
            await lane.passes.wait()
            if not data:
                return
            if self.chunk_reset_share and self._random.random() < self.chunk_reset_share:
                self.num_resets += 1
                connection.reset()
                return
            with suppress(OSError):  # who hung up is noticed where it is read from
                writer.write(data)
                await writer.drain()
            self.num_bytes += len(data)
            if self.recorded is not None and lane is connection.lanes["up"]:
                self.recorded += data
            if self.bytes_per_s is not None:
                await asyncio.sleep(len(data) / self.bytes_per_s)


_Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(eq=False)
class _Lane:
    """The bytes under way in one direction of a connection."""

    passes: asyncio.Event = field(default_factory=asyncio.Event)  # cleared while it is dead
    has_room: asyncio.Event = field(default_factory=asyncio.Event)
    _waiting: "asyncio.Queue[tuple[float, bytes]]" = field(default_factory=asyncio.Queue)
    _num_bytes: int = 0

    def __post_init__(self) -> None:
        self.passes.set()
        self.has_room.set()

    def put(self, due: float, data: bytes) -> None:
        self._waiting.put_nowait((due, data))
        self._count(len(data))

    async def get(self) -> tuple[float, bytes]:
        due, data = await self._waiting.get()
        self._count(-len(data))
        return due, data

    def _count(self, num_bytes: int) -> None:
        self._num_bytes += num_bytes
        if self._num_bytes < MAX_WAITING_BYTES:
            self.has_room.set()
        else:
            self.has_room.clear()


@dataclass(eq=False)
class _Connection:
    """Both ends of one connection."""

    writers: list[asyncio.StreamWriter]
    lanes: dict[Direction, _Lane] = field(default_factory=lambda: {"up": _Lane(), "down": _Lane()})
    is_reset: asyncio.Event = field(default_factory=asyncio.Event)

    def reset(self) -> None:
        """An RST to both ends; what is under way is lost."""
        self.is_reset.set()
        for writer in self.writers:
            if not writer.transport.is_closing():
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                writer.transport.abort()

    def close(self) -> None:
        for writer in self.writers:
            writer.close()
