"""Compiles the forms that users ask for on a thread of its own, before their texts begin. Knows nothing about HTTP.

One is compiled at a time, and users take turns, so whoever sends many that are costly waits for them himself.
"""

from draft_node.text.fair_queue import FairQueue
from goodspeed.grammar.compiling import Grammars
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
        if self._grammars.known(constraint):
            self._grammars.get(constraint)
            return
        await self._turns.run(user, len(constraint.source), lambda: self._grammars.get(constraint))

    def close(self) -> None:
        """Ends the thread and cancels what still waits."""
        self._turns.close()
