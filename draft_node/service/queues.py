"""Runs work that would hold up the event loop on threads, with turns for users: tokenizing, compiling forms."""

import asyncio
import copy
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from draft_node.core.actions import Request
from goodspeed.constraint.compiling import Compiled, Constraints
from goodspeed.engine.tokenizing.text import NOTHING, Inputs, decode, encode_chat, encode_part, encode_prompt
from goodspeed.errors import Busy, ConstraintError
from goodspeed.wire.generation import Constraint

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
        """Returns what the work gives, or raises; Busy where this user has too much waiting already.

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


LONG = 1 << 14
"""A text of at least this many characters, or token ids, is long; encoding that many takes about 10 ms."""

MAX_CHARS = 1 << 24
"""The most characters of one user's texts that wait or are being encoded, for each of the two tokenizers: four bodies
of 4 MiB. Where token ids become a text, they are counted instead."""

TOO_MUCH = "your earlier texts still wait for the tokenizer; wait for their answers, then ask again"


def num_chat_chars(messages: Sequence[Mapping[str, Any]], inputs: Inputs = NOTHING) -> int:
    """Counts all that a chat template may write: names and roles are as much work as what is said."""
    beside = _num_chars(list(inputs.tools)) + _num_chars(inputs.settings)
    return beside + sum(_num_chars(value) for message in messages for value in message.values())


def _num_chars(value: Any) -> int:
    """Counts the characters of a JSON value, more or less."""
    match value:
        case str():
            return len(value)
        case Mapping():
            return sum(len(name) + _num_chars(member) for name, member in value.items())
        case list() | tuple():
            return sum(map(_num_chars, value))
        case None:
            return 0
        case _:
            return 4


class Encoder:
    """Runs the tokenizers in threads of their own, with turns for users by name."""

    def __init__(self, tokenizer: Any) -> None:
        self._short = tokenizer, FairQueue(MAX_CHARS, TOO_MUCH, "short-texts")
        self._long = copy.deepcopy(tokenizer), FairQueue(MAX_CHARS, TOO_MUCH, "long-texts")

    async def prompt(self, text: str, user: str) -> tuple[int, ...]:
        """Token ids; PromptError when it has none, Busy when too much of this user's waits."""
        tokenizer, turns = self._for(len(text))
        return tuple(await turns.run(user, len(text), lambda: encode_prompt(tokenizer, text)))

    async def chat(self, messages: Sequence[Mapping[str, Any]], user: str, inputs: Inputs = NOTHING) -> tuple[int, ...]:
        """Token ids of a conversation; PromptError where the chat template refuses it, Busy as above."""
        num_chars = num_chat_chars(messages, inputs)
        tokenizer, turns = self._for(num_chars)
        return tuple(await turns.run(user, num_chars, lambda: encode_chat(tokenizer, messages, inputs)))

    async def part(self, text: str, user: str) -> tuple[int, ...]:
        """Token ids of a part of a text, without the special tokens of a beginning; none for none. Busy as above."""
        tokenizer, turns = self._for(len(text))
        return tuple(await turns.run(user, len(text), lambda: encode_part(tokenizer, text)))

    async def decode(self, token_ids: Sequence[int], user: str) -> str:
        """Text of token ids, without special tokens; Busy as above."""
        tokenizer, turns = self._for(len(token_ids))
        return await turns.run(user, len(token_ids), lambda: decode(tokenizer, token_ids))

    def close(self) -> None:
        """Ends the threads and cancels the calls that still wait."""
        for _, turns in (self._short, self._long):
            turns.close()

    def _for(self, num_chars: int) -> tuple[Any, FairQueue]:
        return self._short if num_chars < LONG else self._long


MAX_FORM_CHARS = 1 << 18
"""The most characters of one user's forms that wait or are being compiled."""

TOO_MANY_FORMS = "the forms of your earlier requests are still being compiled; wait for their answers, then ask again"


class Forms:
    """`check` a form before it is taken; `held` while its text is written."""

    def __init__(self, constraints: Constraints) -> None:
        self._constraints = constraints
        self._turns = FairQueue(MAX_FORM_CHARS, TOO_MANY_FORMS, "forms")

    async def check(self, constraint: Constraint, user: str) -> None:
        """ConstraintError, with the reason, where it cannot be served; Busy where too much of this user's waits."""
        if problem := await self._turns.run(user, len(constraint.source), lambda: self._constraints.tried(constraint)):
            raise ConstraintError(problem)

    @asynccontextmanager
    async def held(self, request: Request) -> AsyncGenerator[None, None]:
        """Compiles the request's form for the draft model, which has it until the session is over.

        One that cannot be compiled here is for the verify node to refuse. Where too much of this user's waits, it is
        drafted without regard to the form, which costs acceptance only.
        """
        if request.constraint is None:
            yield
            return
        with suppress(ConstraintError, Busy):
            self._constraints.offer(request.constraint, await self._compiled(request.constraint, request.user))
            self._constraints.hold(request.session_id, request.constraint)
        try:
            yield
        finally:
            self._constraints.release(request.session_id)

    async def _compiled(self, constraint: Constraint, user: str) -> Compiled:
        return await self._turns.run(user, len(constraint.source), lambda: self._constraints.compiled(constraint))

    def close(self) -> None:
        """Ends the thread and cancels what still waits."""
        self._turns.close()
