"""The phases of a session on the verify node, and the table of all transitions between them.

A session whose constraint must be compiled starts in COMPILING: it is open like every other, but rounds leave it out.
Every other session starts in OPENED. FINISHED is final. A reopened session is a new one. The KV cache is independent of
the phase: a session may be prefilled in chunks, preempted and prefilled again in any phase, and `PagePool.length` alone
gives the number of cached tokens. Drafts are also independent of the phase: a round takes the draft that has arrived.

The phase is stored although other fields imply it: `validate` finds sessions whose phase and fields disagree, and a
transition in the wrong phase raises at once.
"""

from enum import Enum

from goodspeed.serving.measuring.story import Transitions


class Phase(Enum):
    """The states of a session."""

    COMPILING = "compiling"  # its constraint is being compiled, or waits for that
    OPENED = "opened"  # no verdict yet: prefill
    RUNNING = "running"  # each round adds tokens, with or without a draft
    FINISHED = "finished"  # its text is complete; unacknowledged tokens may be requested again


TRANSITIONS: Transitions[Phase] = {
    Phase.COMPILING: {"begin": Phase.OPENED},
    Phase.OPENED: {"commit": Phase.RUNNING},
    Phase.RUNNING: {"commit": Phase.RUNNING, "finish": Phase.FINISHED},
    Phase.FINISHED: {},
}
"""A round commits tokens; if they reach the text's end, it finishes the session at once."""


class BrokenInvariant(RuntimeError):
    """An invariant of the verify node's state does not hold: an error of this program, never of a peer."""
