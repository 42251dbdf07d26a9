"""Serves a verify node on a thread of another program's process, without signals and without output."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

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
        except (Exception, SystemExit) as error:  # SystemExit: wrong options, which the parser has printed
            first = first_of(error)
            why = str(first) or type(first).__name__
        if not self._is_stopped:
            self._failed(why)

    async def _serve(self) -> None:
        prepare("warning", PROGRAM)
        daemon, serving = load(build_parser().parse_args(self._words), EventLog(enabled=False), QUIET)
        daemon.member = self._member
        loop, task = asyncio.get_running_loop(), asyncio.ensure_future(serving())
        self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
        with suppress(asyncio.CancelledError):
            await task
