"""What was written to a connection and not taken by its other side yet, in bytes. Knows nothing about HTTP."""

import asyncio
import fcntl
import struct
import sys
from typing import Any

IS_LINUX = sys.platform == "linux"

SIOCOUTQ = 0x5411
"""Asks a Linux socket how much of what it sent is not acknowledged."""


class Line:
    """A transport that counts; it does all else as it did."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self.num_written = 0
        self._transport = transport

    def write(self, data: bytes) -> None:
        self.num_written += len(data)
        self._transport.write(data)

    def num_pending(self) -> int:
        """What waits in this process, and on Linux what waits in the system too."""
        return self._transport.get_write_buffer_size() + self._num_unacknowledged()

    def _num_unacknowledged(self) -> int:
        connection = self._transport.get_extra_info("socket")
        if not IS_LINUX or connection is None or connection.fileno() < 0:
            return 0
        try:
            return int(struct.unpack("i", fcntl.ioctl(connection.fileno(), SIOCOUTQ, bytes(4)))[0])
        except OSError:
            return 0  # it ended meanwhile

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
