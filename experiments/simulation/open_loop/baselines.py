"""Verify nodes to compare with: prompts before anything else, as vLLM did, or texts first, as Sarathi has it."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from verify_node.core.core import VerifyCore
from verify_node.scheduler.pack import plan
from verify_node.scheduler.round import Round
from verify_node.session.drafted import NOTHING
from verify_node.session.session import Session
from verify_node.slo.allotting import Allotment


class PrefillFirst(VerifyCore):
    """Its rounds are of prompts only, as long as there is one that is not read, and memory for it."""

    def _pack(self, sessions: list[Session], ready: list[Session], now: float) -> Round:
        """A session whose prompt is read has one token that is not cached; one that was preempted reads it again."""
        unread = [session for session in ready if len(session.tokens) - self.pool.length(session.session_id) > 1]
        prompts = super()._pack(sessions, unread, now)
        return prompts if prompts.entries else super()._pack(sessions, ready, now)


class DecodeFirst(VerifyCore):
    """Its rounds have at most `max_round_tokens`, of which prompts get what the texts' tokens and drafts leave."""

    def _pack(self, sessions: list[Session], ready: list[Session], now: float) -> Round:
        """Prompts get half of a limit that is twice what is left; the whole round has a limit of its own."""
        drafted = self.choice.choose(ready, now)
        going_on = [one for one in ready if self._unread(one) == 1]
        own = sum(1 + len(drafted.get(one.session_id, NOTHING).tokens) for one in going_on)
        left = self.limits.max_round_tokens - own
        left -= self._num_ending([one for one in ready if self._unread(one) > 1], left)
        limits = replace(self.limits, max_round_tokens=2 * max(1, left))
        whole = Allotment(self.limits.max_round_tokens, {}, (), frozenset())
        resolve = partial(self.preemption.resolve, now=now)
        return plan(self.num_rounds + 1, sessions, ready, limits, self.pool, drafted, resolve, whole)

    def _unread(self, session: Session) -> int:
        """Tokens that are not cached; of a text that goes on it is the newest one."""
        return len(session.tokens) - self.pool.length(session.session_id)

    def _num_ending(self, reading: Sequence[Session], left: int) -> int:
        """How many prompts so many tokens read to the end: the last token of each does not count as read."""
        number = 0
        for session in sorted(reading, key=lambda one: (one.ready_since, one.admitted)):
            left -= self._unread(session)
            if left < 0:
                break
            number += 1
        return number
