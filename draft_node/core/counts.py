"""Counters of the draft node since its start, for metrics: plain numbers that only grow. No I/O, no clock."""

from collections import Counter
from dataclasses import dataclass, field
from typing import get_args

from draft_node.core.actions import Statistics
from goodspeed.slo.objectives import OTHER
from goodspeed.wire.messages import RefusalCode

OWN = ("busy", "verify_away", "target_changed", "closed", "internal")
"""Failure codes of the draft node itself."""

KNOWN = (*get_args(RefusalCode), *OWN)


def known(code: str) -> str:
    """Returns the code, or OTHER for one that this release does not know: names from the network are not stored."""
    return code if code in KNOWN else OTHER


@dataclass(slots=True)
class Counts:
    """Counts of connections, refusals and closed sessions."""

    num_connected: int = 0  # handshakes; all but the first are reconnections
    num_redirected: int = 0  # sessions that a verify node redirected to another
    refusals: Counter[str] = field(default_factory=Counter)  # by code
    statistics: Statistics = field(default_factory=Statistics)  # of all closed sessions

    def refused(self, code: str) -> None:
        self.refusals[known(code)] += 1


def total(*parts: Statistics) -> Statistics:
    """Returns the sum, field by field."""
    names = Statistics.__dataclass_fields__
    begins = Statistics()
    return Statistics(**{name: sum((getattr(part, name) for part in parts), getattr(begins, name)) for name in names})
