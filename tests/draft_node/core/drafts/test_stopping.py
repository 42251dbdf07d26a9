"""When one more token is not worth drafting: AdaSpec's rule by hand, and how fast a text grows."""

import pytest

from draft_node.core.actions import Propose, Request
from draft_node.core.drafts.stopping import Rate, least_odds
from goodspeed.wire.messages import Sampling

REQUEST = Request(bytes(16), (1, 2, 3), Sampling(), 50)


def asked(**changes):
    return Propose(REQUEST, 1, 0, (1, 2, 3), 5, least_odds=0.1, rate=50.0, **changes)


def test_by_hand():
    assert least_odds(asked(), 0.002) == pytest.approx(0.1 + 50 * 0.002), "the time that one waits costs 0.1 tokens"
    assert least_odds(asked(ahead=True), 0.002) == 0.1
    assert least_odds(asked(unasked=True), 0.002) == 0.1


def test_a_rate_follows_the_text():
    rate = Rate()
    rate.observe(3, 1.0)
    assert rate.value == 0.0, "how long the first took is not known"
    rate.observe(2, 1.1)
    assert rate.value == pytest.approx(20.0)
    rate.observe(1, 1.2)
    assert rate.value == pytest.approx(20.0 + 0.6 * (10.0 - 20.0))
    rate.observe(1, 1.2)
    assert rate.value == pytest.approx(14.0), "two verdicts at once count as one"
    rate.observe(1, 1.3)
    assert rate.value == pytest.approx(14.0 + 0.6 * (20.0 - 14.0))
