"""Compiles the forms that users ask for on a thread of its own, before their texts begin. Knows nothing about HTTP.

One is compiled at a time, and users take turns, so whoever sends many that are costly waits for them himself. Each text
has its own.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from draft_node.core.actions import Request
from draft_node.text.fair_queue import FairQueue
from goodspeed.constraint.compiling import Compiled, Grammars
from goodspeed.errors import Busy, GrammarError
from goodspeed.wire.generation import Constraint

MAX_CHARS = 1 << 18
"""The most characters of one user's forms that wait or are being compiled."""

TOO_MUCH = "the forms of your earlier requests are still being compiled; wait for their answers, then ask again"


class Forms:
    """`check` a form before it is taken; `held` while its text is written."""

    def __init__(self, grammars: Grammars) -> None:
        self._grammars = grammars
        self._turns = FairQueue(MAX_CHARS, TOO_MUCH, "forms")

    async def check(self, constraint: Constraint, user: str) -> None:
        """GrammarError, with the reason, where the form cannot be served; Busy where too much of this user's waits."""
        if problem := await self._turns.run(user, len(constraint.source), lambda: self._grammars.tried(constraint)):
            raise GrammarError(problem)

    @asynccontextmanager
    async def held(self, request: Request) -> AsyncGenerator[None, None]:
        """Compiles the request's form for the draft model, which has it until the session is over.

        One that cannot be compiled here is for the verify node to refuse. Where too much of this user's waits, it is
        drafted without regard to the form, which costs acceptance only.
        """
        if request.constraint is None:
            yield
            return
        with suppress(GrammarError, Busy):
            self._grammars.offer(request.constraint, await self._compiled(request.constraint, request.user))
            self._grammars.hold(request.session_id, request.constraint)
        try:
            yield
        finally:
            self._grammars.release(request.session_id)

    async def _compiled(self, constraint: Constraint, user: str) -> Compiled:
        return await self._turns.run(user, len(constraint.source), lambda: self._grammars.compiled(constraint))

    def close(self) -> None:
        """Ends the thread and cancels what still waits."""
        self._turns.close()
