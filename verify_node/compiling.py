"""Sessions that wait for their constraint to be compiled, before the core sees them.

It is compiled on a thread, which drops Python's lock, one at a time: whoever sends many that are costly waits, since
senders take turns, and neither the event loop nor the model's thread does.
"""

import asyncio
import logging
from collections import OrderedDict, deque
from typing import NamedTuple

from goodspeed.constraint.compiling import Compiled, Constraints
from goodspeed.errors import ConstraintError
from goodspeed.wire.generation import Constraint
from goodspeed.wire.messages import Close, OpenSession
from goodspeed.wire.zmq.transport import Received

logger = logging.getLogger("goodspeed.verify")

MAX_WAITING = 256
"""Messages of one sender that wait; one more is refused."""


class Compiling:
    """`take` messages as they come, and give them out by `next` once the core need not compile anything for them."""

    def __init__(self, constraints: Constraints) -> None:
        self._constraints = constraints
        self._waiting: OrderedDict[bytes, deque[_Opening]] = OrderedDict()  # by sender, whose turn it is first
        self._there = asyncio.Event()
        self._newest: _Opening | None = None  # which is compiled now, unless it was forgotten

    def concerns(self, received: Received) -> bool:
        """Whether the message opens a session with a constraint that it does not hold yet."""
        message = received.message
        if not isinstance(message, OpenSession) or message.constraint is None:
            return False
        return not self._constraints.holds(message.session_id, message.constraint)

    def take(self, received: Received) -> bool:
        """Has an opening wait that it concerns; returns False where too many of its sender do."""
        message = received.message
        if not isinstance(message, OpenSession) or message.constraint is None:
            raise TypeError(f"{type(message).__name__} has nothing that is compiled")
        queue = self._waiting.setdefault(received.peer, deque())
        if len(queue) >= MAX_WAITING:
            return False
        queue.append(_Opening(received, message.constraint))
        self._there.set()
        return True

    def forget(self, closing: Received) -> None:
        """A Close came: openings of that session by the same sender that wait, or are compiled now, are over.

        Else they would open it afterwards, for nobody.
        """
        if self._newest is not None and _is_closed(self._newest.received, closing):
            self._newest = None
        queue = self._waiting.get(closing.peer, ())
        if left := deque(each for each in queue if not _is_closed(each.received, closing)):
            self._waiting[closing.peer] = left
        else:
            self._waiting.pop(closing.peer, None)

    async def next(self) -> Received:
        """Waits for the next message whose constraint is compiled, or was found to be wrong.

        What came of it is offered: the message is to be handled at once, before anything else is.
        """
        while True:
            self._newest = opening = await self._first()
            if not self.concerns(opening.received):
                return opening.received  # repeated while it waited; its session is open by now
            compiled = await self._compiled(opening)
            if self._newest is not None:
                self._constraints.offer(opening.constraint, compiled)
                return opening.received

    async def _compiled(self, opening: "_Opening") -> Compiled:
        """What came of the compiling. An exception that nobody foresaw costs this session only."""
        try:
            return await asyncio.to_thread(self._constraints.compiled, opening.constraint)
        except Exception as error:
            logger.exception("a constraint could not be compiled", extra={"peer": opening.received.peer.hex()})
            return ConstraintError(f"compiling it failed ({type(error).__name__}); write it in another way")

    async def _first(self) -> "_Opening":
        """Waits for the message whose turn it is."""
        while not self._waiting:
            self._there.clear()
            await self._there.wait()
        sender, queue = self._waiting.popitem(last=False)
        opening = queue.popleft()
        if queue:
            self._waiting[sender] = queue  # at the end
        return opening


class _Opening(NamedTuple):
    """A message that opens a session, and what is compiled for it."""

    received: Received
    constraint: Constraint


def _is_closed(waiting: Received, closing: Received) -> bool:
    """Whether a Close is of the session that waits to be opened, as it is to be opened or later."""
    opened, closed = waiting.message, closing.message
    if not isinstance(opened, OpenSession) or not isinstance(closed, Close):
        return False
    is_same_sender = (waiting.peer, waiting.principal) == (closing.peer, closing.principal)
    return is_same_sender and opened.session_id == closed.session_id and opened.epoch <= closed.epoch
