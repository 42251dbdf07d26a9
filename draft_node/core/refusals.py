"""What a session does about a refusal of one of its messages."""

from dataclasses import dataclass
from enum import Enum

from goodspeed.wire.messages import RefusalCode

MAX_REFUSALS = 20
"""Refusals in a row, without a token in between, after which the session is given up; on a bad line a few are no
one's fault."""

FATAL = frozenset(
    {
        "prompt",
        "vocabulary",
        "unsupported",
        "constraint",
        "not_owner",
        "malformed",
        "too_large",
        "failed",
        "not_promised",
    }
)
IGNORED = frozenset({"stale_epoch", "proposal"})
LATER = frozenset({"too_many_sessions", "draining"})


class Reaction(Enum):
    """What to do about a refusal."""

    IGNORE = "ignore"
    WAIT = "wait"  # and then open the session anew
    REOPEN = "reopen"
    FAIL = "fail"


@dataclass(slots=True)
class Refusals:
    """Counts the refusals of one session in a row."""

    num_in_a_row: int = 0

    def answered(self) -> None:
        """The verify node sent something new."""
        self.num_in_a_row = 0

    def refused(self, code: RefusalCode | str) -> Reaction:
        """A message was refused with this code."""
        if code in IGNORED:
            return Reaction.IGNORE
        if code in LATER:
            self.num_in_a_row = 0
            return Reaction.WAIT
        self.num_in_a_row += 1
        return Reaction.FAIL if code in FATAL or self.num_in_a_row > MAX_REFUSALS else Reaction.REOPEN
