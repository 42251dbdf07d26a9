"""Service levels over HTTP: how they are asked for, what is refused and why, and what the usage tells."""

from typing import Any

import pytest

from goodspeed.slo.objectives import Objectives, parse_tiers
from goodspeed.wire.handshake import SloTerms
from tests.draft_node.http.fake import Api, refused
from tests.draft_node.service.test_slo_tiers import levels

TIERS = parse_tiers(["chat:ttft=500ms,tpot=50ms", "priority:tpot=20ms"])


@pytest.fixture
def api(api: Api) -> Api:
    api.service.known_levels = levels(told=SloTerms(tuple(TIERS.values()), 0.01))
    return api


def wanted(api: Api) -> Objectives | None:
    return api.service.generations[-1].slo


@pytest.mark.parametrize(
    ("slo", "meant"),
    [
        ("chat", TIERS["chat"]),
        ({"ttft_ms": 200}, Objectives(ttft_s=0.2)),
        ({"tpot_ms": 12.5}, Objectives(tpot_s=0.0125)),
        ({"ttft_ms": 200, "tpot_ms": 30}, Objectives(0.2, 0.03)),
        ({"tpot_ms": 30, "tpot_window": 0}, Objectives(tpot_s=0.03, tpot_window=0)),
        ({"tpot_ms": 30, "thinking_tpot_ms": 20}, Objectives(tpot_s=0.03, thinking_tpot_s=0.02)),
    ],
)
def test_a_request_names_a_tier_or_says_it_itself(api: Api, slo: Any, meant: Objectives) -> None:
    for ask in (api.complete, api.chat):
        assert ask(goodspeed={"slo": slo}, max_tokens=3).status_code == 200
        assert wanted(api) == meant


@pytest.mark.parametrize("name", ["x-slo-ttft-ms", "X-SLO-TPOT-MS"])
def test_headers_of_other_servers_are_refused(api: Api, name: str) -> None:
    answer = api.client.post("/v1/completions", json={"prompt": "a"}, headers={name: "200"})
    refused(answer, name.lower(), "send goodspeed.slo", code="unknown_parameter")
    assert not api.service.generations


@pytest.mark.parametrize("tier", ["priority", "auto", "default", None])
def test_openais_service_tier_asks_for_the_tier_of_that_name_if_there_is_one(api: Api, tier: str | None) -> None:
    assert api.chat(service_tier=tier, max_tokens=3).status_code == 200
    assert wanted(api) == TIERS.get(tier or "")


def test_a_tier_called_default_is_for_those_that_ask_for_nothing(api: Api) -> None:
    api.service.known_levels = levels(told=SloTerms(tuple(parse_tiers(["default:ttft=2s"]).values())))
    api.complete(max_tokens=3)
    assert wanted(api) == Objectives(ttft_s=2.0, tier="default")


@pytest.mark.parametrize(
    ("body", "param", "what"),
    [
        ({"goodspeed": {"slo": "fast"}}, "goodspeed.slo", "there is no tier 'fast'; choose one of: chat, priority"),
        ({"goodspeed": {"slo": {"tpot_ms": 1}}}, "goodspeed.slo", "ask for at least 10 ms"),
        ({"goodspeed": {"otherwise": "refuse"}}, "goodspeed.otherwise", "send goodspeed.slo"),
        ({"goodspeed": {"slo": "chat", "otherwise": "wait"}}, "goodspeed.otherwise", "must be 'best_effort' or 'ref"),
        ({"service_tier": "flex"}, "service_tier", "there is no tier 'flex'; choose one of: chat, priority"),
        ({"service_tier": "gold"}, "service_tier", "must be 'auto', 'default', 'flex', 'priority' or 'scale'"),
        ({"service_tier": "priority", "goodspeed": {"slo": "chat"}}, "service_tier", "send one of them"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_with_what_can(api: Api, body: Any, param: str, what: str) -> None:
    is_of_level = "no tier" in what or "ask for at least" in what
    refused(api.chat(**body), param, what, code="slo" if is_of_level else "invalid_value")
    assert not api.service.generations


def test_the_usage_tells_what_was_kept(api: Api) -> None:
    told = api.complete(goodspeed={"slo": "chat"}, max_tokens=3).json()["usage"]["goodspeed"]["slo"]
    measured = {"ttft_ms": 400.0, "tpot_ms": 10.0, "slowest_tpot_ms": 20.0}
    assert told == {"tier": "chat", **measured, "attained": True, "promised": None}


def test_of_several_choices_the_slowest_counts(api: Api) -> None:
    api.service.slow_choices = 1
    told = api.complete(goodspeed={"slo": {"tpot_ms": 50}}, n=2, max_tokens=3).json()["usage"]["goodspeed"]["slo"]
    assert (told["tier"], told["ttft_ms"], told["tpot_ms"], told["attained"]) == (None, 400.0, 90.0, False)


def test_without_objectives_the_usage_says_nothing_of_them(api: Api) -> None:
    assert "slo" not in api.complete(max_tokens=3).json()["usage"]["goodspeed"]


def test_a_request_says_what_becomes_of_it_otherwise(api: Api) -> None:
    api.complete(goodspeed={"slo": "chat", "otherwise": "refuse"}, max_tokens=3)
    api.chat(goodspeed={"slo": "chat"}, max_tokens=3)
    assert [generation.otherwise for generation in api.service.generations] == ["refuse", "best_effort"]
