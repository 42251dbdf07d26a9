"""Starts child processes that print JSON events, reads the events, and always ends the processes.

Each child has its own process group: a Ctrl-C in the terminal reaches only this process, which stops the children.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import goodspeed
from goodspeed.errors import ProcessError
from goodspeed.serving.running import stop_signals

Event: TypeAlias = dict[str, Any]
T = TypeVar("T")

ROOT = Path(goodspeed.__file__).parents[1]
"""Folder with the packages `goodspeed`, `draft_node` and `verify_node`."""

GRACE_S = 5.0
"""Seconds from SIGTERM to SIGKILL."""

MAX_LINE = 1 << 26
TAIL_LINES = 12


@dataclass(eq=False)
class Child:
    """One child process. name: for messages."""

    name: str
    process: Process
    echo: bool = False  # passes its standard error on, line by line
    _tail: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL_LINES))  # latest lines of standard error
    _seen: dict[str, "asyncio.Future[Event]"] = field(default_factory=dict)  # first event of each kind
    _ended: "asyncio.Task[int]" = field(init=False)

    def __post_init__(self) -> None:
        self._ended = asyncio.create_task(self._listen(), name=self.name)

    async def expect(self, kind: str, timeout_s: float | None = None) -> Event:
        """Waits for the first event of a kind, or returns it if it came before.

        timeout_s: None: no limit. Raises ProcessError at the child's end, or at the timeout.
        """
        first = self._first(kind)
        either: list[asyncio.Future[Any]] = [first, self._ended]
        await asyncio.wait(either, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if first.done():
            return first.result()
        if self._ended.done():
            raise self.failure()
        raise self._error(f"was not {kind} within {timeout_s:g} s")

    async def ended(self) -> int:
        """Waits until the child has ended and its output is read; returns the exit status."""
        return await asyncio.shield(self._ended)

    async def must_go_on(self) -> None:
        """Runs as long as the child; raises ProcessError when it ends."""
        await self.ended()
        raise self.failure()

    def signal(self, number: int) -> None:
        """Sends a signal unless the child has ended."""
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)

    def failure(self) -> ProcessError:
        status = self.process.returncode
        if status == -signal.SIGKILL:
            return self._error(f"was killed by signal {-status}, perhaps for want of memory")
        how = f"was killed by signal {-status}" if status is not None and status < 0 else f"ended with status {status}"
        return self._error(how)

    async def _listen(self) -> int:
        await asyncio.gather(self._hear(), self._keep_tail())
        return await self.process.wait()

    async def _hear(self) -> None:
        async for line in _lines(self.process.stdout):
            event = _parse(line)
            if "event" in event:
                first = self._first(event["event"])
                if not first.done():
                    first.set_result(event)

    async def _keep_tail(self) -> None:
        async for line in _lines(self.process.stderr):
            if text := line.decode(errors="replace").rstrip():
                self._tail.append(text)
                if self.echo:
                    print(f"{self.name}: {text}", file=sys.stderr)

    def _first(self, kind: str) -> "asyncio.Future[Event]":
        if kind not in self._seen:
            self._seen[kind] = asyncio.get_running_loop().create_future()
        return self._seen[kind]

    def _error(self, how: str) -> ProcessError:
        """Returns an error with the child's latest line of standard error, and earlier lines as a note."""
        error = ProcessError(": ".join(filter(None, [f"{self.name} {how}", *list(self._tail)[-1:]])))
        if len(self._tail) > 1:
            error.add_note("\n  ".join([f"{self.name} said:", *list(self._tail)[:-1]]))
        return error


class Processes:
    """The child processes of one run; all have ended when the `async with` block exits, even by an exception."""

    def __init__(self, environment: dict[str, str], *, echo: bool = False) -> None:
        self._environment = environment
        self._echo = echo
        self._children: list[Child] = []

    async def __aenter__(self) -> "Processes":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self, name: str, command: Sequence[str]) -> Child:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
            limit=MAX_LINE,
            env=self._environment,
            start_new_session=True,
        )
        child = Child(name, process, self._echo)
        self._children.append(child)
        return child

    async def stop(self) -> None:
        """Ends running children with SIGTERM; kills those that remain after GRACE_S, or all if interrupted."""
        running = [child for child in self._children if child.process.returncode is None]
        try:
            for child in running:
                child.signal(signal.SIGTERM)
            await wait_for_ends(running, GRACE_S)
        finally:
            for child in running:
                child.signal(signal.SIGKILL)
        await wait_for_ends(running, GRACE_S)


def environment() -> dict[str, str]:
    """Returns the children's environment: ours with one thread per process, UTF-8 pipes and ROOT importable."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUTF8": "1", "PYTHONPATH": path}


def run_interruptible(work: Coroutine[Any, Any, T]) -> T:
    """Runs work. A signal cancels it and then raises KeyboardInterrupt; a second signal hurries the cleanup.

    Unlike in `running.until_signal`, a second signal does not end the program: that would leave child processes behind.
    """

    async def guarded() -> T:
        task = asyncio.ensure_future(work)
        for number in stop_signals():
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        return await task

    try:
        return asyncio.run(guarded())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def wait_for_ends(children: Sequence[Child], timeout_s: float) -> None:
    """Waits until all children have ended and their output is read, at most timeout_s."""
    if children:
        await asyncio.wait([asyncio.create_task(child.ended()) for child in children], timeout=timeout_s)


async def _lines(stream: asyncio.StreamReader | None) -> AsyncIterator[bytes]:
    if stream is not None:
        async for line in stream:
            yield line


def _parse(line: bytes) -> Event:
    """Parses a line as JSON; returns {} unless it is an object."""
    try:
        value = json.loads(line)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
