"""Keys may ask for some service levels, and are granted them."""

import pytest

from goodspeed.slo.objectives import LONGEST_S, Objectives, parse_tiers
from goodspeed.wire.enrolled import Enrolled
from goodspeed.wire.handshake import SloTerms
from verify_node.slo.terms import granted, terms_of

TIERS = parse_tiers(["chat:ttft=500ms,tpot=50ms", "code:tpot=20ms", "batch:ttft=60s"])
KEY = "0" * 40


def record(**changes):
    return Enrolled("ana", KEY, **changes)


@pytest.mark.parametrize("without", [None, record()])
def test_whose_key_says_nothing_may_ask_for_all_tiers(without):
    assert terms_of(TIERS, without) == SloTerms(tuple(TIERS.values()))


def test_a_key_may_be_limited_to_tiers_and_then_to_no_tpot_below_theirs_or_that_of_thinking():
    terms = terms_of(TIERS, record(tiers=("chat", "batch", "gone")))
    assert [tier.tier for tier in terms.tiers] == ["chat", "batch"]
    assert terms.least_tpot_s == 0.05
    tiers = parse_tiers(["agent:tpot=50ms,thinking_tpot=20ms", "chat:tpot=30ms"])
    terms = terms_of(tiers, record(tiers=("agent", "chat")))
    assert terms == SloTerms(tuple(tiers.values()), 0.02)
    assert granted(tiers["agent"], terms) == tiers["agent"]


@pytest.mark.parametrize("tiers", [(), ("gone",), ("batch",)])
def test_a_key_whose_tiers_have_no_tpot_may_ask_for_none(tiers):
    terms = terms_of(TIERS, record(tiers=tiers))
    assert granted(Objectives(tpot_s=0.001), terms).tpot_s == LONGEST_S


def test_a_keys_own_least_tpot_goes_before_that_of_its_tiers_which_are_told_as_it_may_have_them():
    assert terms_of(TIERS, record(tiers=("chat",), least_tpot_s=0.03)).least_tpot_s == 0.03
    assert terms_of(TIERS, record(least_tpot_s=0.01)) == SloTerms(tuple(TIERS.values()), 0.01)
    terms = terms_of(TIERS, record(least_tpot_s=0.03))
    assert [tier.tpot_s for tier in terms.tiers] == [0.05, 0.03, None]
    assert granted(TIERS["code"], terms) == Objectives(None, 0.03, "code")


def test_a_level_that_is_no_tier_here_or_not_the_keys_own_gives_no_name_to_metrics():
    terms = terms_of(TIERS, record(tiers=("chat",)))
    assert granted(TIERS["chat"], terms) == TIERS["chat"]
    assert granted(TIERS["code"], terms) == Objectives(None, 0.05), "as its key allows"
    assert granted(Objectives(tpot_s=1.0, tier="invented"), terms).tier == ""
    assert granted(Objectives(tpot_s=0.2, tier="chat"), terms_of(TIERS, None)) == Objectives(tpot_s=0.2)
