"""A transport that counts the bytes that the other side has not acknowledged yet."""

import asyncio
import fcntl
import struct
import sys
from typing import Any

IS_LINUX = sys.platform == "linux"

SIOCOUTQ = 0x5411
"""ioctl: bytes in a Linux socket's send queue, sent or not, that are not acknowledged."""


class CountingTransport:
    """Counts what is written, and passes everything on to an asyncio transport."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self.num_written = 0
        self._transport = transport

    def write(self, data: bytes) -> None:
        self.num_written += len(data)
        self._transport.write(data)

    def num_pending(self) -> int:
        """Returns the bytes that wait in this process and, on Linux, in the kernel."""
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
