"""Runs work that would block the event loop on threads, fairly by user: tokenizing, compiling constraints."""

import asyncio
import copy
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from draft_node.core.generation import Generation
from goodspeed.constraint.compiling import Constraints
from goodspeed.engine.tokenizing.control_tokens import ControlTokens
from goodspeed.engine.tokenizing.text import NOTHING, Inputs, decode, encode_chat, encode_prompt
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


MAX_BYTES = 1 << 26
"""Most bytes of one user's large bodies that wait to be parsed: 16 bodies of 4 MiB."""

TOO_MANY_BODIES = "your earlier requests still wait to be parsed; wait for their answers, then ask again"

NO_BOUND = sys.maxsize
"""No bound on one user's waiting answers: their texts were admitted and are complete, so none is refused now."""

LONG = 1 << 14
"""Characters or token ids from which a text is long; encoding that many takes about 10 ms."""

MAX_CHARS = 1 << 24
"""Most characters of one user's texts that wait or are being encoded, per tokenizer (there are two): four bodies of
4 MiB. For decoding, token ids count instead."""

TOO_MUCH = "your earlier texts still wait to be tokenized; wait for their answers, then ask again"


def num_chat_chars(messages: Sequence[Mapping[str, Any]], inputs: Inputs = NOTHING) -> int:
    """Counts the characters that a chat template may emit, including names, roles, tools and settings."""
    beside = _num_chars(list(inputs.tools)) + _num_chars(inputs.settings)
    return beside + sum(_num_chars(value) for message in messages for value in message.values())


def _num_chars(value: Any) -> int:
    """Counts the characters of a JSON value, approximately."""
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
    """Runs two tokenizers, for short and long texts, each on its own thread and fairly by user."""

    def __init__(self, tokenizer: Any, *, refuses_control_tokens: bool = False) -> None:
        """refuses_control_tokens: refuses conversations whose own texts spell control tokens."""
        self._control_tokens = ControlTokens(tokenizer) if refuses_control_tokens else None
        self._short = tokenizer, FairQueue(MAX_CHARS, TOO_MUCH, "short-texts")
        self._long = copy.deepcopy(tokenizer), FairQueue(MAX_CHARS, TOO_MUCH, "long-texts")

    async def prompt(self, text: str, user: str) -> tuple[int, ...]:
        """Returns a prompt's token ids; PromptError if there are none, Busy if too much of this user's work waits."""
        return tuple(await self._run(len(text), user, lambda tokenizer: encode_prompt(tokenizer, text)))

    async def chat(self, messages: Sequence[Mapping[str, Any]], user: str, inputs: Inputs = NOTHING) -> tuple[int, ...]:
        """Returns a conversation's token ids; PromptError if the chat template refuses it, Busy as in `prompt`."""

        def encode(tokenizer: Any) -> list[int]:
            if self._control_tokens is not None:
                self._control_tokens.refuse(tokenizer, messages, inputs.tools, inputs.settings)
            return encode_chat(tokenizer, messages, inputs)

        return tuple(await self._run(num_chat_chars(messages, inputs), user, encode))

    async def decode(self, token_ids: Sequence[int], user: str) -> str:
        """Returns the text of token ids, without special tokens; Busy as in `prompt`."""
        return await self._run(len(token_ids), user, lambda tokenizer: decode(tokenizer, token_ids))

    async def _run(self, size: int, user: str, work: Callable[[Any], T]) -> T:
        """Runs work with the tokenizer for texts of this size, in characters or token ids."""
        tokenizer, turns = self._short if size < LONG else self._long
        return await turns.run(user, size, lambda: work(tokenizer))

    def close(self) -> None:
        """Ends the threads and cancels waiting calls."""
        for _, turns in (self._short, self._long):
            turns.close()


MAX_FORM_CHARS = 1 << 18
"""Most characters of one user's constraints that wait or are being compiled."""

TOO_MANY_FORMS = "the schemas of your earlier requests are still being compiled; wait for the answers, then ask again"


class Forms:
    """Compiles constraints in turn: `check` before admission, `held` while a text is generated."""

    def __init__(self, constraints: Constraints) -> None:
        self._constraints = constraints
        self._turns = FairQueue(MAX_FORM_CHARS, TOO_MANY_FORMS, "forms")

    async def check(self, constraint: Constraint, user: str) -> None:
        """Raises ConstraintError if a constraint cannot be served; Busy if too much of this user's work waits."""
        if problem := await self._turns.run(user, len(constraint.source), lambda: self._constraints.tried(constraint)):
            raise ConstraintError(problem)

    @asynccontextmanager
    async def held(self, request: Generation) -> AsyncGenerator[None, None]:
        """Compiles the request's constraint for the draft model meanwhile, and holds it until the session ends.

        Begins at once, so that nothing changes between a text's admission and its place in the queue. Until the
        constraint is compiled, and if too much of this user's work waits, drafts ignore it, which only lowers the
        acceptance rate. Leaves the refusal of a constraint that does not compile to the verify node.
        """
        if request.constraint is None:
            yield
            return
        holding = asyncio.create_task(self._hold(request.session_id, request.constraint, request.user))
        try:
            yield
        finally:
            holding.cancel()
            self._constraints.release(request.session_id)

    async def _hold(self, session_id: bytes, constraint: Constraint, user: str) -> None:
        work = partial(self._constraints.compiled, constraint)
        with suppress(Busy):
            compiled = await self._turns.run(user, len(constraint.source), work)
            if not isinstance(compiled, ConstraintError):
                self._constraints.hold(session_id, compiled)

    def close(self) -> None:
        """Ends the thread and cancels waiting calls."""
        self._turns.close()
