"""Processes that were started once and are found again later, by their id and the moment they began.

An id alone may belong to another process by then. Linux only: it reads /proc. Knows nothing about what they do.
"""

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct


class Ran(Struct, frozen=True):
    """A process of this machine, now or ever."""

    pid: int
    ticks: int  # of the clock from the machine's start to the process's
    boot: str  # of the machine


class Seen(NamedTuple):
    """A process as /proc has it."""

    pid: int
    parent: int
    session: int
    ticks: int


def boot_id() -> str:
    """Returns the id of this machine's last start."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def look(pid: int) -> Seen | None:
    """Returns what is known of a running process; None for one that has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    words = stat.rpartition(")")[2].split()  # its name, before, may have any characters
    if words[0] in "ZX":
        return None
    return Seen(pid, int(words[1]), int(words[3]), int(words[19]))


def remember(pid: int) -> Ran:
    """Returns what identifies a running process; ProcessLookupError when it has ended."""
    if (seen := look(pid)) is None:
        raise ProcessLookupError(pid)
    return Ran(pid, seen.ticks, boot_id())


def is_running(ran: Ran) -> bool:
    """Whether that very process runs, and not another with its id."""
    return (seen := look(ran.pid)) is not None and seen.ticks == ran.ticks and boot_id() == ran.boot


def send(ran: Ran, number: int) -> bool:
    """Sends a signal to that very process; returns whether it was there."""
    try:
        descriptor = os.pidfd_open(ran.pid)
    except OSError:
        return False
    try:
        if not is_running(ran):  # looked at while we hold it: no other can get its id meanwhile
            return False
        signal.pidfd_send_signal(descriptor, number)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)


def end(running: Iterable[Ran], grace_s: float) -> None:
    """Sends SIGTERM to all, and SIGKILL to those that have not ended after grace_s."""
    left = [ran for ran in running if send(ran, signal.SIGTERM)]
    deadline = time.monotonic() + grace_s
    while (left := [ran for ran in left if is_running(ran)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    for ran in left:
        send(ran, signal.SIGKILL)


def of_session(session: int, marks: Iterable[str]) -> list[Ran]:
    """Returns our own running processes of a session in whose command line one of the marks stands."""
    found, boot = [], boot_id()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or (seen := look(int(entry.name))) is None or seen.session != session:
            continue
        with suppress(OSError):
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if entry.stat().st_uid == os.getuid() and any(mark in line for mark in marks):
                found.append(Ran(seen.pid, seen.ticks, boot))
    return found
