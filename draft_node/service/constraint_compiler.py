"""Compiles the constraints of requests (structured output) on a thread, fairly by user."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from functools import partial

from draft_node.core.generation import Generation
from draft_node.service.fair_queue import FairQueue
from goodspeed.constraint.compiling import Constraints
from goodspeed.errors import Busy, ConstraintError
from goodspeed.wire.generation import Constraint

MAX_CHARS = 1 << 18
"""Most characters of one user's constraints that wait or are being compiled."""

TOO_MANY = "the schemas of your earlier requests are still being compiled; wait for the answers, then ask again"


class ConstraintCompiler:
    """Compiles constraints in turn: `check` before admission, `held` while a text is generated."""

    def __init__(self, constraints: Constraints) -> None:
        self._constraints = constraints
        self._turns = FairQueue(MAX_CHARS, TOO_MANY, "constraints")

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
