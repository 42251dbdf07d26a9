"""Runs work that would block the event loop on a thread, fairly by user."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from goodspeed.errors import Busy

T = TypeVar("T")


@dataclass(slots=True)
class _User:
    size: int = 0  # of all unfinished work
    turns: list["asyncio.Future[None]"] = field(default_factory=list)  # of the same work, in order


class FairQueue:
    """Queues work by user, on one thread: round-robin over users, first in, first out within a user."""

    def __init__(self, max_size: int, too_much: str, name: str, *, at_once: int = 0) -> None:
        """max_size: most work of one user, waiting or running, in any unit; too_much: message of Busy beyond that.

        name: of the thread. at_once: smaller work is not queued, but runs at once in the event loop.
        """
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._max_size = max_size
        self._too_much = too_much
        self._at_once = at_once
        self._users: dict[str, _User] = {}  # those with work waiting or running
        self._running: asyncio.Future[None] | None = None  # the turn of the work that has the thread
        self._is_closed = False

    async def run(self, user: str, size: int, work: Callable[[], T]) -> T:
        """Runs `work` in turn; returns its result or raises its error. Busy if the user would exceed `max_size`.

        A user without other work may add work of any size; it counts as at least 1. Between two pieces of work all
        other tasks of the event loop run, so work counts for a moment after its result is there. Work whose caller is
        cancelled runs to its end if it has begun.
        """
        if size < self._at_once:
            return work()
        size = max(1, size)
        account = self._users.get(user)
        if account is not None and account.size + size > self._max_size:
            raise Busy("busy", self._too_much)
        account = self._users.setdefault(user, _User())
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        account.size += size
        account.turns.append(turn)
        self._next()
        try:
            await turn
            future = self._executor.submit(work)
        except BaseException:
            self._end(user, size, turn)
            raise
        result = asyncio.wrap_future(future)
        end = partial(self._end, user, size, turn)
        future.add_done_callback(lambda _: _later(loop, end))  # whether or not the caller still waits
        return await result

    def _end(self, user: str, size: int, turn: "asyncio.Future[None]") -> None:
        """Ends the turn of work that is done, or will not begin."""
        account = self._users[user]
        account.size -= size
        account.turns.remove(turn)
        if self._running is turn:
            self._running = None
            self._users[user] = self._users.pop(user)  # to the end of the round-robin order
        if not account.turns:
            del self._users[user]
        self._next()

    def _next(self) -> None:
        """Gives the thread to the next one who waits, unless it is in use."""
        if self._running is None and not self._is_closed:
            waiting = (turn for account in self._users.values() for turn in account.turns if not turn.done())
            self._running = next(waiting, None)
            if self._running is not None:
                self._running.set_result(None)

    def close(self) -> None:
        """Cancels waiting work; running work finishes, then the thread ends."""
        self._is_closed = True
        for account in self._users.values():
            for turn in account.turns:
                turn.cancel()
        self._executor.shutdown(wait=False, cancel_futures=True)


def _later(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """Has the loop call this after what is ready, and after what that makes ready."""
    with suppress(RuntimeError):  # the loop has ended, and the node with it
        loop.call_soon_threadsafe(loop.call_soon, call)
