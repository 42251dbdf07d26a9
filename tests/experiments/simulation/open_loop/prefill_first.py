"""A verify node to compare with: prompts before anything else, as vLLM did."""

from typing import Any

from verify_node.core.core import VerifyCore
from verify_node.scheduler.prefill import UNBOUNDED
from verify_node.scheduler.round import Round
from verify_node.session.session import Session


class PrefillFirst(VerifyCore):
    """Its rounds are of prompts only, as long as there is one that is not read, and memory for it."""

    def __init__(self, *parts: Any, **options: Any) -> None:
        super().__init__(*parts, **options)
        self._pack_all, self.rounds._pack = self.rounds._pack, self._pack  # type: ignore[method-assign]

    def _pack(self, ready: list[Session], now: float) -> Round:
        """A session whose prompt is read has one token that is not cached; one that was preempted reads it again."""
        self.rounds.starting.prefill.room = UNBOUNDED
        unread = [session for session in ready if len(session.tokens) - self.pool.length(session.session_id) > 1]
        prompts = self._pack_all(unread, now)
        return prompts if prompts.entries else self._pack_all(ready, now)
