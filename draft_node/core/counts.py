"""Counters of sessions, and of the draft node since its start: plain numbers that only grow. No I/O, no clock."""

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import get_args

from goodspeed.drafting.sources import Source, by_source
from goodspeed.slo.objectives import OTHER
from goodspeed.wire.messages import RefusalCode, Verdict

OWN = ("busy", "verify_away", "target_changed", "closed", "constraint_compiler", "slo", "internal")
"""Failure codes of the draft node itself."""

KNOWN = (*get_args(RefusalCode), *OWN)


def known(code: str) -> str:
    """Returns the code, or OTHER for one that this release does not know: names from the network are not stored."""
    return code if code in KNOWN else OTHER


@dataclass(slots=True)
class Statistics:
    """Counts of one session, from its verdicts."""

    num_rounds: int = 0
    num_drafts: int = 0  # verified, with at least one token
    num_drafted: int = 0
    num_accepted: int = 0
    num_tokens: int = 0
    num_refusals: int = 0
    num_resends: int = 0
    num_cached: int = 0  # prompt tokens found in the verify node's prefix cache at the first prefill
    drafted: Counter[Source] = field(default_factory=Counter)  # num_drafted by source
    accepted: Counter[Source] = field(default_factory=Counter)  # num_accepted by source

    def count(self, verdict: Verdict, num_new: int) -> None:
        """Counts an applied verdict. num_new: tokens of the verdict that were new."""
        if self.num_rounds == 0:
            self.num_cached = verdict.num_cached
        self.num_rounds += 1
        self.num_tokens += num_new
        self.num_drafts += verdict.num_verified > 0
        self.num_drafted += verdict.num_verified
        self.num_accepted += verdict.num_accepted
        if verdict.source is not None:
            self.drafted[verdict.source] += verdict.num_verified
            self.accepted[verdict.source] += verdict.num_accepted

    @property
    def draft_acceptance_rate(self) -> float:
        return self.num_accepted / self.num_drafted if self.num_drafted else 0.0

    def by_name(self) -> dict[str, object]:
        """Returns all counts by name, for JSON. `dataclasses.asdict` would count a Counter's items, not copy them."""
        numbers = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return numbers | {"drafted": by_source(self.drafted), "accepted": by_source(self.accepted)}


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
