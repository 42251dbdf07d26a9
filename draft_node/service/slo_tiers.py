"""The service levels (SLOs) that texts may request of the verify node: its tiers, and what the node's key allows."""

from draft_node.core.link import VerifyLink
from goodspeed.errors import RequestRefused, VerifyAway
from goodspeed.slo.objectives import DEFAULT_TIER, LONGEST_S, Objectives

CODE = "slo"
"""Error code for a refused service level."""


class SloTiers:
    """Service levels that texts may request now; none are known before the verify node's Welcome."""

    def __init__(self, link: VerifyLink) -> None:
        self._link = link

    @property
    def tiers(self) -> dict[str, Objectives]:
        welcome = self._link.welcome
        return {tier.tier: tier for tier in welcome.slo.tiers if tier.tier} if welcome is not None else {}

    @property
    def default(self) -> Objectives | None:
        """Level of a text that requests none: the tier named default, if any, with TPOT raised to the key's limit."""
        tier = self.tiers.get(DEFAULT_TIER)
        return None if tier is None else tier.at_least(self._least_tpot_s or 0.0)

    def tier(self, name: str) -> Objectives:
        """Returns a tier by name; RequestRefused with the known tiers if there is none, VerifyAway before Welcome."""
        tiers = self.tiers
        if name not in tiers and self._link.welcome is None:
            what = "the verify node, which may have the tier, has not been reached yet; ask again later"
            raise VerifyAway("verify_away", what)
        if name not in tiers:
            known = f"choose one of: {', '.join(sorted(tiers))}" if tiers else "there are none here; leave it out"
            raise RequestRefused(CODE, f"there is no tier {name[:80]!a}; {known}")
        return self.allowed(tiers[name])

    def allowed(self, slo: Objectives) -> Objectives:
        """Returns `slo`; RequestRefused if its TPOT is shorter than this node's key allows."""
        least_s = self._least_tpot_s
        if least_s is not None and (tpot_s := slo.tightest_tpot_s) is not None and tpot_s < least_s:
            what = f"a TPOT of {1000 * tpot_s:g} ms is shorter than this draft node's key allows"
            instead = "leave it out" if least_s >= LONGEST_S else f"ask for at least {1000 * least_s:g} ms"
            raise RequestRefused(CODE, f"{what}; {instead}")
        return slo

    @property
    def _least_tpot_s(self) -> float | None:
        """Shortest TPOT that this node's key allows, in seconds; None: no limit."""
        welcome = self._link.welcome
        return welcome.slo.least_tpot_s if welcome is not None else None
