"""What a client may ask for: all tiers of this node, or those of its key, and no TPOT below its key's least."""

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from goodspeed.slo.objectives import Objectives
from goodspeed.wire.enrolled import Enrolled
from goodspeed.wire.messages import SloTerms


@dataclass(frozen=True, slots=True)
class Tiers:
    """The tiers of this node."""

    by_name: Mapping[str, Objectives]

    def terms(self, record: Enrolled | None) -> SloTerms:
        """What a draft node may ask for. record: its enrolment; None where there are no keys, or it is not enrolled.

        A key that is limited to tiers and to no TPOT may ask for no TPOT below those of its tiers.
        """
        if record is None or record.tiers is None:
            least_tpot_s = record.least_tpot_s if record is not None else None
            return SloTerms(tuple(self.by_name.values()), least_tpot_s)
        own = tuple(tier for name, tier in self.by_name.items() if name in record.tiers)
        least_tpot_s = record.least_tpot_s
        if least_tpot_s is None:
            least_tpot_s = min((tier.tpot_s for tier in own if tier.tpot_s is not None), default=None)
        return SloTerms(own, least_tpot_s)


def granted(asked: Objectives, terms: SloTerms) -> Objectives:
    """What a text is given of what it asks for: a TPOT that is too short is raised, a tier unknown here loses its name.

    So whoever claims to need a token every millisecond takes nothing from others by it.
    """
    known = any(tier.tier == asked.tier for tier in terms.tiers)
    named = asked if known else replace(asked, tier="")
    return named.at_least(terms.least_tpot_s or 0.0)
