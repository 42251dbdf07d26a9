"""The phases of a session on the verify node.

    OPENED --- commit ---> RUNNING --- commit ---> RUNNING ...

A commit that reaches the text's end leads to FINISHED, and nothing leads away from there. A session that is opened
again is a new one, in OPENED. Key/value memory is no part of this: a session is fed in chunks, preempted and fed again
in whatever phase it is, and `PagePool.length` alone says how much of its text is cached. Neither is what is drafted: a
round takes it as it finds it.

The phase is stored, though it could be told from other fields: a session whose phase and fields disagree is found by
`validate`, and a transition in the wrong phase raises at once.
"""

from enum import Enum


class Phase(Enum):
    """The states of a session."""

    OPENED = "opened"  # no verdict yet: its prompt is being fed
    RUNNING = "running"  # each round moves it on, with or without drafted tokens
    FINISHED = "finished"  # its text is complete; what is not acknowledged may be asked for again


class WrongPhase(RuntimeError):
    """A transition was called in a phase from which it does not lead: an error of this program, never of a peer."""

    def __init__(self, session_id: bytes, phase: Phase, transition: str) -> None:
        super().__init__(f"session {session_id.hex()} is {phase.value}: {transition} is not possible")


class BrokenInvariant(RuntimeError):
    """Something that must hold in the verify node's state does not: an error of this program, never of a peer."""
