"""Tiers as they are written on the command line."""

import pytest

from goodspeed.errors import ConfigError
from goodspeed.slo.objectives import Objectives, parse_tier, parse_tiers


def test_tiers_are_read_with_their_units():
    assert parse_tier("chat:ttft=500ms,tpot=50ms") == Objectives(0.5, 0.05, "chat")
    assert parse_tier("code:tpot=.02s") == Objectives(None, 0.02, "code")
    assert parse_tier("batch:ttft=2s") == Objectives(2.0, None, "batch")
    assert parse_tier("chat:tpot=50ms,window=4") == Objectives(None, 0.05, "chat", 4)
    thinking = parse_tier("chat:tpot=100ms,thinking_tpot=50ms")
    assert thinking == Objectives(None, 0.1, "chat", 10, 0.05)
    assert thinking.whole() == Objectives(None, 0.05, "chat")
    assert thinking.at_least(0.07) == Objectives(None, 0.1, "chat", 10, 0.07)
    assert parse_tier("chat:tpot=50ms") == parse_tier("chat:window=10,tpot=50ms")
    assert list(parse_tiers(["a:tpot=1s", "b:tpot=2s"])) == ["a", "b"]


REFUSED = {
    "a colon": ["chat"],
    "a name of letters": [":tpot=1s", "a b:tpot=1s"],
    "is not ttft=TIME": ["chat:", "chat:tpot"],
    "'speed=1s' is not ttft=TIME": ["chat:speed=1s"],
    "each once": ["chat:tpot=1s,tpot=2s"],
    "tpot is '50' and must be a time from 0.1ms to 3600s": ["chat:tpot=50"],
    "must be a time": ["chat:tpot=-1ms", "chat:tpot=nans", "chat:tpot=0ms", "chat:tpot=2e3s", "chat:tpot=3601s"],
    "window needs a TPOT; add tpot=TIME": ["chat:ttft=1s,window=5"],
    "thinking_tpot needs a TPOT; add tpot=TIME": ["chat:thinking_tpot=1s"],
    "window is 'ten' and must be a number of tokens from 1 to 1000, or 0": ["chat:tpot=1s,window=ten"],
    "must be a number of tokens": ["chat:tpot=1s,window=1001"],
}


@pytest.mark.parametrize(("text", "why"), [(text, why) for why, texts in REFUSED.items() for text in texts])
def test_what_is_no_tier_is_refused_with_an_example(text, why):
    with pytest.raises(ConfigError, match="as in chat:ttft=500ms,tpot=50ms") as refused:
        parse_tier(text)
    assert why in str(refused.value)


def test_a_tier_is_there_once_and_there_are_not_too_many():
    with pytest.raises(ConfigError, match="the tier a is given twice"):
        parse_tiers(["a:tpot=1s", "a:tpot=2s"])
    with pytest.raises(ConfigError, match="33 tiers; give at most 32"):
        parse_tiers([f"t{number}:tpot=1s" for number in range(33)])


def test_a_bound_on_the_tpot_clamps_and_loosens_nothing():
    slo = Objectives(0.5, 0.05, "chat", 4)
    assert slo.at_least(0.1) == Objectives(0.5, 0.1, "chat", 4)
    assert slo.at_least(0.01) is slo
    assert Objectives(0.5).at_least(0.1) == Objectives(0.5)
    assert Objectives().is_empty
    assert not slo.is_empty
