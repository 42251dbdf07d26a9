"""Runs work that would block the event loop on a thread, fairly by user."""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from goodspeed.errors import Busy

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Piece:
    work: Callable[[], Any]
    size: int
    done: "asyncio.Future[Any]"


@dataclass(slots=True)
class _User:
    size: int = 0  # of all unfinished pieces
    waiting: deque[_Piece] = field(default_factory=deque)


class FairQueue:
    """Queues pieces of work by user, on one thread: round-robin over users, first in, first out within a user."""

    def __init__(self, max_size: int, too_much: str, name: str) -> None:
        """max_size: most work of one user, waiting or running, in any unit; too_much: message of Busy beyond that;
        name: of the thread."""
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._max_size = max_size
        self._too_much = too_much
        self._users: dict[str, _User] = {}
        self._is_running = False
        self._is_closed = False

    @property
    def num_users(self) -> int:
        """Number of users with work waiting or running."""
        return len(self._users)

    async def run(self, user: str, size: int, work: Callable[[], T]) -> T:
        """Runs `work` in turn; returns its result or raises its error. Busy if the user would exceed `max_size`.

        A user without other work may add a piece of any size. Every piece counts as at least 1.
        """
        size = max(1, size)
        account = self._users.get(user)
        if account is not None and account.size + size > self._max_size:
            raise Busy("busy", self._too_much)
        account = self._users.setdefault(user, _User())
        piece = _Piece(work, size, asyncio.get_running_loop().create_future())
        account.size += size
        account.waiting.append(piece)
        self._begin()
        try:
            result: T = await piece.done
            return result
        finally:
            if piece in account.waiting:  # the caller was cancelled
                account.waiting.remove(piece)
                self._settle(user, piece)

    def close(self) -> None:
        """Cancels waiting pieces; a running piece finishes, then the thread ends."""
        self._is_closed = True
        for account in self._users.values():
            for piece in account.waiting:
                piece.done.cancel()
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _begin(self) -> None:
        """Starts the next piece if none is running."""
        user = next((name for name, account in self._users.items() if account.waiting), None)
        if self._is_running or self._is_closed or user is None:
            return
        self._is_running = True
        piece = self._users[user].waiting.popleft()
        running = asyncio.get_running_loop().run_in_executor(self._executor, piece.work)
        running.add_done_callback(lambda done: self._ended(user, piece, done))

    def _ended(self, user: str, piece: _Piece, done: "asyncio.Future[Any]") -> None:
        """Defers `_finished` by two turns of the event loop, so that all other ready callbacks run first."""
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, self._finished, user, piece, done)

    def _finished(self, user: str, piece: _Piece, done: "asyncio.Future[Any]") -> None:
        self._is_running = False
        self._users[user] = self._users.pop(user)  # to the end of the round-robin order
        self._settle(user, piece)
        error = None if done.cancelled() else done.exception()
        if piece.done.done():
            pass  # the caller was cancelled
        elif done.cancelled():
            piece.done.cancel()
        elif error is not None:
            piece.done.set_exception(error)
        else:
            piece.done.set_result(done.result())
        self._begin()

    def _settle(self, user: str, piece: _Piece) -> None:
        account = self._users[user]
        account.size -= piece.size
        if not account.waiting and account.size == 0:
            del self._users[user]
