"""The service levels that a text may ask for here: the verify node's tiers, within what this node's key allows."""

from draft_node.core.link import VerifyLink
from goodspeed.errors import RequestRefused, VerifyAway
from goodspeed.slo.objectives import DEFAULT_TIER, LONGEST_S, Objectives

CODE = "slo"
"""Code of the refusal of a level."""


class Levels:
    """What may be asked for now; nothing is known of it before the verify node has said Welcome."""

    def __init__(self, link: VerifyLink) -> None:
        self._link = link

    @property
    def tiers(self) -> dict[str, Objectives]:
        """The tiers by name."""
        welcome = self._link.welcome
        return {tier.tier: tier for tier in welcome.slo.tiers if tier.tier} if welcome is not None else {}

    @property
    def default(self) -> Objectives | None:
        """What a text that asks for nothing gets: the tier called default, if there is one, as the key allows it."""
        tier = self.tiers.get(DEFAULT_TIER)
        return None if tier is None else tier.at_least(self._least_tpot_s or 0.0)

    def tier(self, name: str) -> Objectives:
        """The tier of that name; RequestRefused with those that there are, or VerifyAway if these are not known yet."""
        tiers = self.tiers
        if name not in tiers and self._link.welcome is None:
            what = "the verify node, which may have the tier, has not been reached yet; ask again later"
            raise VerifyAway("verify_away", what)
        if name not in tiers:
            known = f"choose one of: {', '.join(sorted(tiers))}" if tiers else "there are none here; leave it out"
            raise RequestRefused(CODE, f"there is no tier {name[:80]!a}; {known}")
        return self.allowed(tiers[name])

    def allowed(self, slo: Objectives) -> Objectives:
        """The same objectives; RequestRefused if this node's key may not ask for so short a TPOT."""
        least_s = self._least_tpot_s
        if least_s is not None and slo.tpot_s is not None and slo.tpot_s < least_s:
            what = f"a TPOT of {1000 * slo.tpot_s:g} ms is shorter than this draft node's key allows"
            instead = "leave it out" if least_s >= LONGEST_S else f"ask for at least {1000 * least_s:g} ms"
            raise RequestRefused(CODE, f"{what}; {instead}")
        return slo

    @property
    def _least_tpot_s(self) -> float | None:
        """What this node's key allows; None: anything."""
        welcome = self._link.welcome
        return welcome.slo.least_tpot_s if welcome is not None else None
