"""The service levels that may be asked for: the verify node's, within what the key allows."""

import pytest

from draft_node.core.links import TRY_S
from draft_node.core.verify_nodes import Address
from draft_node.http.metrics import DraftCollector
from draft_node.process.daemon import DraftDaemon
from draft_node.service.request_stats import RequestStats
from draft_node.service.slo_tiers import SloTiers
from goodspeed.errors import RequestRefused, VerifyAway
from goodspeed.serving.measuring.counts import ResponseCounts
from goodspeed.serving.measuring.metrics import create_registry
from goodspeed.slo.objectives import LONGEST_S, Objectives, parse_tiers
from goodspeed.wire.handshake import SloTerms
from tests.draft_node.core.scripted import make_core, make_link
from tests.fakes import make_welcome
from tests.memory_network import MemoryNetwork

THEIRS = parse_tiers(["chat:tpot=50ms", "code:tpot=20ms", "default:ttft=9s"])


def levels(told: SloTerms | None = None) -> SloTiers:
    link = make_link()
    if told is not None:
        link.heard(make_welcome(slo=told), 0.0)
    return SloTiers(link)


def test_a_default_tier_is_raised_to_what_the_key_allows():
    tiers = tuple(parse_tiers(["default:tpot=20ms"]).values())
    assert levels(told=SloTerms(tiers, 0.1)).default == Objectives(tpot_s=0.1, tier="default")


def test_a_key_that_allows_no_tpot_says_so():
    with pytest.raises(RequestRefused, match="than this draft node's key allows; leave it out"):
        levels(told=SloTerms((), LONGEST_S)).allowed(Objectives(tpot_s=1.0))


def test_before_the_verify_node_was_there_a_tier_may_be_its_own_and_there_is_no_default():
    assert levels().default is None
    with pytest.raises(VerifyAway, match="ask again later"):
        levels().tier("fast")


async def test_the_metrics_have_the_tiers_of_the_verify_node_that_is_there_now():
    core = make_core(addresses=[Address("tcp://a:1"), Address("tcp://b:1")])
    daemon = DraftDaemon(None, MemoryNetwork().connect_draft(b"a"), core)
    registry = create_registry(DraftCollector(daemon, RequestStats(), ResponseCounts()))
    core.tick(TRY_S)
    core.receive(make_welcome(slo=SloTerms(tuple(THEIRS.values()))), TRY_S, 1)
    told = {sample.labels.get("tier") for family in registry.collect() for sample in family.samples}
    assert {*THEIRS} <= told
