"""The phases of a session on the verify node. Knows nothing about what a session holds.

    OPENED        +--- assign(n > 0) ---> AWAITING --- take_draft ---> DRAFTED
       |          |                          |         take_ahead            |
     commit       |                      go_without                        commit
       |          |                          |                               |
       +----> COMMITTED --- assign(0) ---> ADVANCING                         |
                  ^                          |                               |
                  +--------- commit ---------+-------------------------------+

A commit that reaches the text's end leads to FINISHED instead of COMMITTED, and nothing leads away from there. A
session that is opened again is a new one, in OPENED. Key/value memory is no part of this: a session is fed in chunks,
preempted and fed again in whatever phase it is, and `PagePool.length` alone says how much of its text is cached.

The phase is stored, though it could be told from other fields. So it can be wrong, and that is the point: a transition
that is called in the wrong phase raises at once, and one that forgets a field leaves a session whose phase and fields
disagree, which `validate` finds. A derived phase would take the same session for a sound one in another phase.
"""

from enum import Enum


class Phase(Enum):
    """The states of a session between two verdicts."""

    OPENED = "opened"  # no verdict yet: its prompt is being fed, and nothing is assigned
    AWAITING = "awaiting"  # tokens are assigned, and their draft has not arrived
    DRAFTED = "drafted"  # its draft waits for a round, or is in the one in flight
    ADVANCING = "advancing"  # it has no draft to come: each round moves it on by one token
    COMMITTED = "committed"  # within `VerifyCore.finish` only: the next length is not assigned yet
    FINISHED = "finished"  # its text is complete; what is not acknowledged may be asked for again


class WrongPhase(RuntimeError):
    """A transition was called in a phase from which it does not lead: an error of this program, never of a peer."""

    def __init__(self, session_id: bytes, phase: Phase, transition: str) -> None:
        super().__init__(f"session {session_id.hex()} is {phase.value}: {transition} is not possible")


class BrokenInvariant(RuntimeError):
    """Something that must hold in the verify node's state does not: an error of this program, never of a peer."""
