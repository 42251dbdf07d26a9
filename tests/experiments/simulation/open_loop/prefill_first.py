"""A verify node to compare with: prompts before anything else, as vLLM did."""

from verify_node.core.core import VerifyCore
from verify_node.scheduler.prefill import UNBOUNDED
from verify_node.scheduler.round import Round
from verify_node.session.session import Session


class PrefillFirst(VerifyCore):
    """Its rounds are of prompts only, as long as there is one that is not read, and memory for it."""

    def _pack(self, ready: list[Session], now: float) -> Round:
        """A session whose prompt is read has one token that is not cached; one that was preempted reads it again."""
        self.starting.prefill.room = UNBOUNDED
        unread = [session for session in ready if len(session.tokens) - self.pool.length(session.session_id) > 1]
        prompts = super()._pack(unread, now)
        return prompts if prompts.entries else super()._pack(ready, now)
