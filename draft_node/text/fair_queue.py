"""Work that is done one piece at a time, on a thread of its own, for users who take turns.

Round-robin: one piece per user, so a long queue delays nobody else. A piece that has begun runs to its end even if its
caller is gone; then the event loop has a whole turn, and only then does the next begin. A piece may hold the
interpreter for as long as it runs, and without that turn the pieces would pass it on to each other. Knows nothing about
the work.
"""

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
    size: int = 0  # of all that was asked for and is not finished
    waiting: deque[_Piece] = field(default_factory=deque)


class FairQueue:
    """Queues each user's pieces, and serves the users round-robin; one user's pieces run in the order they came."""

    def __init__(self, max_size: int, too_much: str, name: str) -> None:
        """max_size: the most that one user may have waiting and running, in any unit; too_much: what Busy then says;
        name: the thread's."""
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._max_size = max_size
        self._too_much = too_much
        self._users: dict[str, _User] = {}
        self._is_running = False
        self._is_closed = False

    @property
    def num_users(self) -> int:
        """The number of users who have something waiting or running."""
        return len(self._users)

    async def run(self, user: str, size: int, work: Callable[[], T]) -> T:
        """What the work gives, or raises; Busy where this user has too much waiting already.

        One piece is taken whatever its size, from a user who has nothing else. Every piece counts as 1 at least.
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
            if piece in account.waiting:  # its user left
                account.waiting.remove(piece)
                self._settle(user, piece)

    def close(self) -> None:
        """Cancels the pieces that wait; a piece that runs goes on to its end, and its thread ends with it."""
        self._is_closed = True
        for account in self._users.values():
            for piece in account.waiting:
                piece.done.cancel()
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _begin(self) -> None:
        """The next piece, where none is running."""
        user = next((name for name, account in self._users.items() if account.waiting), None)
        if self._is_running or self._is_closed or user is None:
            return
        self._is_running = True
        piece = self._users[user].waiting.popleft()
        running = asyncio.get_running_loop().run_in_executor(self._executor, piece.work)
        running.add_done_callback(lambda done: self._ended(user, piece, done))

    def _ended(self, user: str, piece: _Piece, done: "asyncio.Future[Any]") -> None:
        """Between this turn of the event loop and the next but one, all who are ready have theirs."""
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, self._finished, user, piece, done)

    def _finished(self, user: str, piece: _Piece, done: "asyncio.Future[Any]") -> None:
        self._is_running = False
        self._users[user] = self._users.pop(user)  # behind all others
        self._settle(user, piece)
        error = None if done.cancelled() else done.exception()
        if piece.done.done():
            pass  # its user left
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
