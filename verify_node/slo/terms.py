"""Service levels that a client may request: all tiers, or those of its key, and no TPOT below its key's minimum."""

from collections.abc import Mapping

from msgspec.structs import replace

from goodspeed.slo.objectives import LONGEST_S, Objectives
from goodspeed.wire.enrolled import Enrolled
from goodspeed.wire.handshake import SloTerms


def terms_of(tiers: Mapping[str, Objectives], record: Enrolled | None) -> SloTerms:
    """Returns the service levels that a draft node may request. record: its enrolment; None: no keys, or not enrolled.

    tiers: this node's, by name. A key limited to tiers, without a minimum TPOT, may request no TPOT below those of its
    tiers; if these have none, no TPOT at all. Tiers are sent with the TPOTs that the key may have.
    """
    if record is None:
        return SloTerms(tuple(tiers.values()))
    own = [tier for name, tier in tiers.items() if record.tiers is None or name in record.tiers]
    least_tpot_s = record.least_tpot_s
    if least_tpot_s is None and record.tiers is not None:
        tightest = (tier.tightest_tpot_s for tier in own)
        least_tpot_s = min((one for one in tightest if one is not None), default=LONGEST_S)
    return SloTerms(tuple(tier.at_least(least_tpot_s or 0.0) for tier in own), least_tpot_s)


def granted(asked: Objectives, terms: SloTerms) -> Objectives:
    """Returns the objectives that a text is granted: a TPOT that is too short is raised.

    So a client that claims to need a token every millisecond takes nothing from others. A tier's name stays only if the
    objectives equal this node's tier: else its metrics would mix different levels.
    """
    raised = asked.at_least(terms.least_tpot_s or 0.0)
    return raised if raised in terms.tiers else replace(raised, tier="")
