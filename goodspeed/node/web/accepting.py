"""Accepts the connections of a listening socket: a few in each turn of the event loop, none while nothing is left.

asyncio's own loop accepts up to a whole backlog at once, during which nothing else moves, and where the process has no
descriptor left it writes a traceback for each try and tries as often as there is room in the backlog. Knows nothing
about HTTP.
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from functools import partial

logger = logging.getLogger("goodspeed.http")

MAX_BEGINNING = 8
"""Accepted connections that no protocol has yet; the next one waits until there are fewer."""

REST_S = 0.5
"""How long nothing is accepted where the system has nothing left for another connection."""

SAY_S = 60.0
"""How often the log tells that this is so."""

SCARCE = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class Acceptor:
    """Hands every accepted connection to a protocol, until closed. Made in a running event loop.

    `close` and `wait_closed` are those of `asyncio.Server`, for whoever expects one.
    """

    def __init__(
        self,
        listener: socket.socket,
        create_protocol: Callable[[], asyncio.BaseProtocol],
        prepare: Callable[[socket.socket], None],
    ) -> None:
        """prepare: sets what every accepted socket shall have; OSError where the other side is gone already."""
        self._listener = listener
        self._create_protocol = create_protocol
        self._prepare = prepare
        self._loop = asyncio.get_running_loop()
        self._beginning: set[asyncio.Task[None]] = set()
        self._resting: asyncio.TimerHandle | None = None
        self._said_at = -SAY_S
        self._loop.add_reader(listener, self._accept)

    def close(self) -> None:
        self._loop.remove_reader(self._listener)
        if self._resting is not None:
            self._resting.cancel()
        for task in self._beginning:
            task.cancel()  # else its connection would begin after whoever closes has ended all others

    async def wait_closed(self) -> None:
        """Connections that have begun live on; whoever serves them ends them."""

    def _accept(self) -> None:
        while len(self._beginning) < MAX_BEGINNING:
            try:
                connection, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in SCARCE:
                    self._rest(error)
                    return
                return  # this one was gone before it was accepted
            self._begin(connection)

    def _begin(self, connection: socket.socket) -> None:
        task = self._loop.create_task(self._connect(connection))
        self._beginning.add(task)
        task.add_done_callback(partial(self._begun, connection))

    async def _connect(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._prepare(connection)
        await self._loop.connect_accepted_socket(self._create_protocol, connection)

    def _begun(self, connection: socket.socket, task: "asyncio.Task[None]") -> None:
        """A transport owns the socket now; or none does, and then the socket is closed here.

        Not in the task, since one that is cancelled before its first step never runs.
        """
        self._beginning.discard(task)
        error = None if task.cancelled() else task.exception()
        if task.cancelled() or error is not None:
            connection.close()
        if isinstance(error, OSError):
            logger.info("an HTTP connection ended before it began", extra={"error": error.strerror})
        elif error is not None:
            logger.error("an HTTP connection could not begin", exc_info=error)

    def _rest(self, error: OSError) -> None:
        """The listening socket stays readable: it is not looked at for a moment, or nothing else would happen."""
        now = self._loop.time()
        if now - self._said_at >= SAY_S:
            self._said_at = now
            logger.warning(
                "no HTTP connection can be accepted now; allow this process more descriptors (ulimit -n)",
                extra={"error": error.strerror},
            )
        self._loop.remove_reader(self._listener)
        self._resting = self._loop.call_later(REST_S, self._go_on)

    def _go_on(self) -> None:
        self._loop.add_reader(self._listener, self._accept)
