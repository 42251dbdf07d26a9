"""A small pipe that a test fills, so that whoever writes into it next has to wait."""

import fcntl
import os
import select
from contextlib import suppress

FILLING = b"-------\n"
SIZE = 4096
DEADLINE_S = 300.0


class Pipe:
    """Both ends of a pipe. `writing` blocks, as a shell's pipes do."""

    def __init__(self) -> None:
        self._reading, self.writing = os.pipe()
        fcntl.fcntl(self.writing, fcntl.F_SETPIPE_SZ, SIZE)
        self._read = b""

    def fill(self) -> None:
        """Leaves no room, by an open file of its own: O_NONBLOCK belongs to that, and not to the pipe."""
        filling = os.open(f"/proc/self/fd/{self.writing}", os.O_WRONLY | os.O_NONBLOCK)
        with suppress(BlockingIOError):
            while True:
                os.write(filling, FILLING)
        os.close(filling)

    def read_until(self, text: str) -> list[str]:
        """Lines up to the first one with this text, without the filling."""
        lines: list[str] = []
        while not lines or text not in lines[-1]:
            line, end, rest = self._read.partition(b"\n")
            if end:
                self._read = rest
                lines += [line.decode()] if line not in FILLING else []
                continue
            assert select.select([self._reading], [], [], DEADLINE_S)[0], f"{text!r} did not come"
            more = os.read(self._reading, SIZE)
            assert more, f"{text!r} did not come"
            self._read += more
        return lines

    def read_to_the_end(self) -> list[str]:
        """All lines that are left, once this process writes no more, without the filling."""
        os.close(self.writing)
        self.writing = -1
        while more := os.read(self._reading, SIZE):
            self._read += more
        return [line for line in self._read.decode().splitlines() if line.encode() not in FILLING]

    def close(self) -> None:
        for end in (self._reading, self.writing):
            if end >= 0:
                os.close(end)
