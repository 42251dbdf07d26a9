"""Compiles the forms that users ask for on a thread of its own, before their texts begin. Knows nothing about HTTP.

One is compiled at a time, and users take turns, so whoever sends many that are costly waits for them himself. Nobody
finds what another's was compiled to.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from draft_node.core.actions import Request
from draft_node.text.fair_queue import FairQueue
from goodspeed.errors import GrammarError
from goodspeed.grammar.compiling import Grammars
from goodspeed.grammar.kept import scope_of
from goodspeed.wire.generation import Constraint

MAX_CHARS = 1 << 18
"""The most characters of one user's forms that wait or are being compiled."""

TOO_MUCH = "the forms of your earlier requests are still being compiled; wait for their answers, then ask again"


class Forms:
    """`check` a form; the compiled ones are kept for the draft model."""

    def __init__(self, grammars: Grammars) -> None:
        self._grammars = grammars
        self._turns = FairQueue(MAX_CHARS, TOO_MUCH, "forms")

    async def check(self, constraint: Constraint, user: str) -> None:
        """GrammarError, with the reason, where the form cannot be served; Busy where too much of this user's waits."""
        scope = scope_of(user)
        if self._grammars.known(constraint, scope):
            self._grammars.get(constraint, scope)
            return
        await self._turns.run(user, len(constraint.source), lambda: self._grammars.get(constraint, scope))

    @asynccontextmanager
    async def held(self, request: Request) -> AsyncGenerator[None, None]:
        """Keeps the request's form compiled for the draft model, until its session is over; Busy as `check`.

        One that cannot be compiled here is for the verify node to refuse.
        """
        if request.constraint is None:
            yield
            return
        with suppress(GrammarError):
            await self.check(request.constraint, request.user)
            self._grammars.hold(request.session_id, request.constraint, scope_of(request.user))
        try:
            yield
        finally:
            self._grammars.release(request.session_id)

    def close(self) -> None:
        """Ends the thread and cancels what still waits."""
        self._turns.close()
