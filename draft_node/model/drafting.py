"""Runs the draft model on its own thread: queues requests for proposals, and returns the proposals.

If the model fails, hangs or is much too slow, its sessions lose only their drafts: each request is answered with an
empty proposal.
"""

import asyncio
import logging
import time
from collections import OrderedDict

from draft_node.model.circuit_breaker import DRAFTING_TIMEOUT_S, CircuitBreaker
from goodspeed.drafting.draft_model import DraftModel
from goodspeed.drafting.proposing import Propose, Proposed
from goodspeed.errors import MalformedMessage, TransportError, first_line
from goodspeed.serving.loop import ModelThread

logger = logging.getLogger("goodspeed.draft")


class Drafting:
    """`want` proposals, and `take` complete ones. All methods but `_steps` run in the event loop."""

    def __init__(self, drafter: DraftModel) -> None:
        self.drafter = drafter
        self.breaker = CircuitBreaker()
        self._wanted: OrderedDict[bytes, Propose | None] = OrderedDict()  # newest per session; None: forget the session
        self._known: set[bytes] = set()  # sessions passed to the drafter, or queued for it
        self._work = asyncio.Event()
        self._thread = ModelThread()
        self._told: float | None = None  # start of the last step that the log told to hang

    def want(self, propose: Propose, now: float) -> Proposed | None:
        """Queues a request. Returns an empty proposal at once if the circuit breaker is open, or tests with another."""
        session_id = propose.request.session_id
        if (began := self.breaker.late_since(now)) not in (None, self._told):
            self._told = began
            logger.warning("the %s hangs; its sessions continue without drafts", self.drafter.called)
        on_trial = self.breaker.num_in_a_row > 0 and (self.drafter.busy or bool(self._wanted))
        if self.breaker.is_open(now) or on_trial:
            return Proposed(session_id, propose.epoch, propose.round, ())
        self._known.add(session_id)
        self._add(session_id, propose)
        return None

    def forget(self, session_id: bytes) -> None:
        if session_id in self._known:
            self._known.discard(session_id)
            self._add(session_id, None)

    async def take(self) -> list[Proposed]:
        """Waits for the next proposals, complete or given up. Runs the model while there are requests."""
        await self._work.wait()
        self._work.clear()
        proposed = await self._thread.run(self._steps)
        if self.drafter.busy or self._wanted:
            self._work.set()
        return proposed

    def close(self) -> None:
        """Waits at most DRAFTING_TIMEOUT_S for the running step. Blocks the event loop: call it at the very end."""
        if not self._thread.close(DRAFTING_TIMEOUT_S):
            logger.warning("the %s hangs; stopping without waiting for it", self.drafter.called)
        else:
            self.drafter.close()

    def _add(self, session_id: bytes, wanted: Propose | None) -> None:
        self._wanted[session_id] = wanted  # a single operation: the model thread may take all at any moment
        self._work.set()

    # -- on the model thread ---------------------------------------------------------------------------------------

    def _steps(self) -> list[Proposed]:
        """Runs steps until a proposal is complete; adds new requests between steps."""
        try:
            while True:
                self._take_wanted()
                if not self.drafter.busy:
                    return []
                self.breaker.begin(time.monotonic())
                proposed = self.drafter.step()
                if not self.breaker.end(time.monotonic()):
                    logger.warning("the %s took too long; its sessions continue without drafts", self.drafter.called)
                    self.breaker.failed(time.monotonic())
                    return proposed + self.drafter.give_up()
                if any(each.tokens for each in proposed):
                    self.breaker.worked()
                if proposed:
                    return proposed
        except Exception as error:  # such as out of memory; a server that is away needs no traceback
            where = None if isinstance(error, (TransportError, MalformedMessage)) else error
            what = f"{type(error).__name__}: {first_line(error)}" if where else error
            told = "the %s failed; its sessions continue without drafts: %s"
            logger.error(told, self.drafter.called, what, exc_info=where)
            self.breaker.failed(time.monotonic())
            return self.drafter.abandon()

    def _take_wanted(self) -> None:
        while self._wanted:
            session_id, wanted = self._wanted.popitem(last=False)
            if wanted is not None:
                self.drafter.add(wanted)
            else:
                self.drafter.forget(session_id)
