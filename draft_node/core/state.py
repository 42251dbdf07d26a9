"""The states of a session at the draft node, as a picture.

    OFFLINE --connect--> OPENING --Verdict--> RUNNING --Verdict, proposed--> RUNNING ...
    any state --disconnect, redirected--> OFFLINE; --finish_reason, cancel, failure--> DONE
    any state --"try later"--> POSTPONED --connect--> OPENING
    OFFLINE --fall_back--> LOCAL --proposed--> LOCAL ... --connect--> OPENING; --end of the text, failure--> DONE

`session.py` has the transitions.
"""

from enum import Enum


class State(Enum):
    """What a session waits for."""

    OFFLINE = "offline"
    OPENING = "opening"
    RUNNING = "running"  # it goes on by itself, and what is drafted for it goes up
    POSTPONED = "postponed"  # the verify node has no room; `line.py` knows when it has a place again
    LOCAL = "local"  # the verify node is away, and the draft model writes alone
    DONE = "done"

    @property
    def is_open(self) -> bool:
        """Whether a verify node knows a session in this state, as far as this node can tell."""
        return self in (State.OPENING, State.RUNNING)
