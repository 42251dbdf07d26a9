"""The service levels that a text may ask for here: this node's tiers and the verify node's, within what its key allows.

Knows nothing about HTTP, nor whether a level is kept.
"""

from collections.abc import Mapping

from draft_node.core.link import VerifyLink
from goodspeed.errors import RequestRefused
from goodspeed.slo.objectives import DEFAULT_TIER, Objectives

CODE = "slo"
"""Code of the refusal of a level."""


class Levels:
    """What may be asked for now; the verify node's part is known once it has said Welcome."""

    def __init__(self, own: Mapping[str, Objectives], link: VerifyLink) -> None:
        self._own = own
        self._link = link

    @property
    def tiers(self) -> dict[str, Objectives]:
        """All tiers by name; of two by the same name, this node's own."""
        welcome = self._link.welcome
        told = {tier.tier: tier for tier in welcome.slo.tiers if tier.tier} if welcome is not None else {}
        return told | dict(self._own)

    @property
    def default(self) -> Objectives | None:
        """What a text that asks for nothing gets: the tier called default, if there is one."""
        return self.tiers.get(DEFAULT_TIER)

    def tier(self, name: str) -> Objectives:
        """The tier of that name; RequestRefused with those that there are."""
        tiers = self.tiers
        if name not in tiers:
            known = f"choose one of: {', '.join(sorted(tiers))}" if tiers else "there are none here; leave it out"
            raise RequestRefused(CODE, f"there is no tier {name[:80]!a}; {known}")
        return self.allowed(tiers[name])

    def allowed(self, slo: Objectives) -> Objectives:
        """The same objectives; RequestRefused if this node's key may not ask for so short a TPOT."""
        welcome = self._link.welcome
        least_s = welcome.slo.least_tpot_s if welcome is not None else None
        if least_s is not None and slo.tpot_s is not None and slo.tpot_s < least_s:
            what = f"a TPOT of {1000 * slo.tpot_s:g} ms is shorter than this draft node's key allows"
            raise RequestRefused(CODE, f"{what}; ask for at least {1000 * least_s:g} ms")
        return slo
