"""Serves a verify node on a thread of another program's process, without signals and without output."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NoReturn

from goodspeed.errors import ConfigError
from goodspeed.serving.events import QUIET, EventLog
from goodspeed.serving.running import first_of, prepare
from verify_node.cli import PROGRAM, build_parser, load
from verify_node.process.fleet_member import Member


class Hosted:
    """A verify node on a thread, from the start of loading until it is stopped or fails."""

    def __init__(self, words: Sequence[str], member: Member, failed: Callable[[str], None]) -> None:
        """words: options of goodspeed-verify. failed: called with the reason, on that thread, unless stopped."""
        self._words, self._member, self._failed = words, member, failed
        self._cancel: Callable[[], object] | None = None  # once it serves
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Makes the node redirect its sessions and end. A node that is still loading ends only with its process."""
        self._is_stopped = True
        if self._cancel is not None:
            self._cancel()
            self._thread.join(timeout_s)

    def _run(self) -> None:
        why = "it ended by itself"
        try:
            asyncio.run(self._serve())
        except Exception as error:
            first = first_of(error)
            why = str(first) or type(first).__name__
        if not self._is_stopped:
            self._failed(why)

    async def _serve(self) -> None:
        prepare("warning", PROGRAM)
        parser = build_parser()
        parser.exit = _refuse  # type: ignore[method-assign]
        daemon, serving = load(parser.parse_args(self._words), EventLog(enabled=False), QUIET)
        daemon.member = self._member
        loop, task = asyncio.get_running_loop(), asyncio.ensure_future(serving())
        self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
        with suppress(asyncio.CancelledError):
            await task


def _refuse(status: int = 0, message: str | None = None) -> NoReturn:
    """Raises what a parser would print before it ended the process."""
    raise ConfigError((message or "").strip())
