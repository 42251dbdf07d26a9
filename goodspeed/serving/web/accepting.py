"""Accepts connections of a listening socket, a few per turn of the event loop, none while descriptors are exhausted.

asyncio's own server accepts up to a whole backlog at once, which blocks the event loop. When descriptors are exhausted,
asyncio retries up to the backlog's size and writes a traceback for each try.
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from functools import partial

logger = logging.getLogger("goodspeed.http")

MAX_CONNECTING = 8
"""Most accepted connections still without a protocol; further connections wait in the backlog."""

PAUSE_S = 0.5
"""Pause in accepting after descriptors or memory were exhausted."""

WARN_INTERVAL_S = 60.0
"""Shortest time between two warnings about exhausted descriptors or memory."""

SCARCE = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class Acceptor:
    """Passes every accepted connection to a protocol, until closed. Needs a running event loop.

    Replaces `asyncio.Server` in uvicorn; `close` and `wait_closed` have the same meaning.
    """

    def __init__(
        self,
        listener: socket.socket,
        create_protocol: Callable[[], asyncio.BaseProtocol],
        prepare: Callable[[socket.socket], None],
    ) -> None:
        """prepare: sets an accepted socket's options; may raise OSError if the client is gone."""
        self._listener = listener
        self._create_protocol = create_protocol
        self._prepare = prepare
        self._loop = asyncio.get_running_loop()
        self._connecting: set[asyncio.Task[None]] = set()
        self._paused: asyncio.TimerHandle | None = None
        self._said_at = -WARN_INTERVAL_S
        self._loop.add_reader(listener, self._accept)

    def close(self) -> None:
        self._loop.remove_reader(self._listener)
        if self._paused is not None:
            self._paused.cancel()
        for task in self._connecting:
            task.cancel()  # else its connection would begin after all others have ended

    async def wait_closed(self) -> None:
        """Returns at once: established connections continue until their protocols end them."""

    def _accept(self) -> None:
        while len(self._connecting) < MAX_CONNECTING:
            try:
                connection, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in SCARCE:
                    self._pause(error)
                    return
                return  # the client left before it was accepted
            self._begin(connection)

    def _begin(self, connection: socket.socket) -> None:
        task = self._loop.create_task(self._connect(connection))
        self._connecting.add(task)
        task.add_done_callback(partial(self._begun, connection))

    async def _connect(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._prepare(connection)
        await self._loop.connect_accepted_socket(self._create_protocol, connection)

    def _begun(self, connection: socket.socket, task: "asyncio.Task[None]") -> None:
        """Closes the socket unless a transport owns it now.

        The task cannot close it: a task cancelled before its first step never runs.
        """
        self._connecting.discard(task)
        error = None if task.cancelled() else task.exception()
        if task.cancelled() or error is not None:
            connection.close()
        if isinstance(error, OSError):
            logger.info("an HTTP connection ended before it began", extra={"error": error.strerror})
        elif error is not None:
            logger.error("an HTTP connection could not begin", exc_info=error)

    def _pause(self, error: OSError) -> None:
        """Stops watching the listening socket for PAUSE_S: it stays readable, so the event loop would spin."""
        now = self._loop.time()
        if now - self._said_at >= WARN_INTERVAL_S:
            self._said_at = now
            logger.warning(
                "cannot accept HTTP connections now; allow this process more descriptors (ulimit -n)",
                extra={"error": error.strerror},
            )
        self._loop.remove_reader(self._listener)
        self._paused = self._loop.call_later(PAUSE_S, self._resume)

    def _resume(self) -> None:
        self._loop.add_reader(self._listener, self._accept)
