"""Parameters that change logits or name tokens that end a text: what becomes of them, and sentences about them."""

from typing import Any

import pytest

from goodspeed.errors import RequestRefused
from goodspeed.wire.generation import TokenBias
from goodspeed.wire.handshake import Defaults
from goodspeed.wire.messages import LogitRules
from tests.draft_node.serve.api.fake import Api, error_of


@pytest.mark.parametrize("ask", [Api.complete, Api.chat])
def test_all_of_them_reach_the_service(ask: Any) -> None:
    api = Api()
    bias = {"7": -100, "3": 0.5, "9": 0}
    rules = {"presence_penalty": 0.5, "frequency_penalty": -2, "repetition_penalty": 1.1, "min_p": 0.05}
    answer = ask(api, **rules, logit_bias=bias, stop_token_ids=[5, 0, 5], ignore_eos=True)
    assert answer.status_code == 200
    [wanted] = api.service.wanted
    biases = (TokenBias(3, 0.5), TokenBias(7, -100.0))
    assert wanted.logit_rules == LogitRules(0.5, -2.0, 1.1, 0.05, biases)
    assert (wanted.stop_token_ids, wanted.ignore_eos) == ((5, 0), True)


def test_what_changes_nothing_asks_for_nothing() -> None:
    """Such a text is written by a verify node of an older release, too."""
    api = Api()
    api.complete(presence_penalty=0, frequency_penalty=0, repetition_penalty=1, min_p=0, logit_bias={"7": 0})
    assert api.service.wanted[0].logit_rules is None


def test_what_is_left_open_is_as_the_targets_makers_say_also_of_the_next_target() -> None:
    api = Api()
    api.service.chat_defaults = Defaults(repetition_penalty=1.05, min_p=0.02)
    api.chat()
    api.chat(repetition_penalty=1, presence_penalty=1)
    open_, said = api.service.wanted
    assert open_.logit_rules == LogitRules(repetition_penalty=1.05, min_p=0.02)
    assert said.logit_rules == LogitRules(presence_penalty=1.0, min_p=0.02)
    assert said.resolve is not None
    assert said.resolve(Defaults(min_p=0.5)).rules == LogitRules(presence_penalty=1.0, min_p=0.5)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"presence_penalty": 2.5}, "presence_penalty must be at most 2"),
        ({"frequency_penalty": -3}, "frequency_penalty must be at least -2"),
        ({"repetition_penalty": 0}, "repetition_penalty must be at least 0.01"),
        ({"min_p": "x"}, "min_p must be a number"),
        ({"logit_bias": {"256": 1}}, "logit_bias: 256 is no token id; they go from 0 to 255"),
        ({"logit_bias": {"the": 1}}, 'logit_bias must have token ids as its names, like {"50256": -100}'),
        ({"logit_bias": {"5": 1, "05": 1}}, 'logit_bias must have token ids as its names, like {"50256": -100}'),
        ({"logit_bias": {"5": -101}}, "logit_bias.5 must be at least -100"),
        ({"logit_bias": 5}, "logit_bias must be an object"),
        ({"logit_bias": {str(each): 1 for each in range(1025)}}, "logit_bias must have at most 1024 members"),
        ({"stop_token_ids": [3, 300]}, "stop_token_ids: 300 is no token id; they go from 0 to 255"),
        ({"stop_token_ids": ["a"]}, "stop_token_ids.0 must be a whole number"),
        ({"stop_token_ids": [0] * 65}, "stop_token_ids must have at most 64 members"),
    ],
)
@pytest.mark.parametrize("ask", [Api.complete, Api.chat])
def test_what_is_wrong_is_told(ask: Any, body: dict[str, Any], message: str) -> None:
    assert error_of(ask(Api(), **body))["message"] == message


def test_a_verify_node_that_does_not_know_them_makes_it_the_requests_fault() -> None:
    api = Api()
    api.fail(RequestRefused("unsupported", "the verify node does not know penalties, min_p and logit_bias"))
    assert error_of(api.complete(min_p=0.1))["code"] == "unsupported"


def test_the_document_has_their_ranges() -> None:
    schemas = Api().client.get("/openapi.json").json()["components"]["schemas"]
    for name in ("CompletionRequest", "ChatRequest"):
        parameters = schemas[name]["properties"]
        assert parameters["min_p"]["anyOf"][0] == {"type": "number", "minimum": 0, "maximum": 1}
        assert parameters["stop_token_ids"]["anyOf"][0]["maxItems"] == 64
        bias = parameters["logit_bias"]["anyOf"][0]
        assert bias["additionalProperties"] == {"type": "number", "minimum": -100, "maximum": 100}
        assert bias["maxProperties"] == 1024
