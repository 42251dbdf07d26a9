"""Parameters that change logits or name tokens that end a text: what becomes of them, and sentences about them."""

from typing import Any

import pytest

from draft_node.core.text import Text
from goodspeed.wire.codec import MAX_MESSAGE_BYTES, decode_up, encode
from goodspeed.wire.generation import LogitRules, TokenBias
from tests.draft_node.http.fake import Api, refused

LARGEST: list[dict[str, Any]] = [
    {"stop_token_ids": list(range(2, 64)), "logit_bias": {str(token): 100 for token in range(256)}},
    {"temperature": 2, "top_k": (1 << 31) - 1, "top_p": 1, "seed": (1 << 63) - 1, "n": 3, "logprobs": 20},
    {"temperature": 0, "top_k": -1, "top_p": 1e-6, "seed": -(1 << 63), "n": 3},
    {"presence_penalty": 2, "frequency_penalty": -2, "repetition_penalty": 100, "min_p": 1, "min_tokens": 4},
    {"repetition_penalty": 0.01, "goodspeed": {"slo": {"ttft_ms": 3_600_000, "tpot_ms": 0.1}, "max_draft": 1024}},
    {"structured_outputs": {"json": {"description": "x" * 65_000}}, "goodspeed": {"drafter": "none"}},
]


@pytest.mark.parametrize("ask", [Api.complete, Api.chat])
def test_all_of_them_reach_the_service(api: Api, ask: Any) -> None:
    bias = {"7": -100, "3": 0.5, "9": 0}
    rules = {"presence_penalty": 0.5, "frequency_penalty": -2, "repetition_penalty": 1.1, "min_p": 0.05}
    answer = ask(api, **rules, logit_bias=bias, stop_token_ids=[5, 0, 5], ignore_eos=True)
    assert answer.status_code == 200
    [generation] = api.service.generations
    assert generation.logit_rules == LogitRules(0.5, -2.0, 1.1, 0.05, (TokenBias(3, 0.5), TokenBias(7, -100.0)))
    assert generation.stop_ids == (5, 0)


def test_what_changes_nothing_asks_for_nothing(api: Api) -> None:
    """Such a text is written by a verify node of an older release, too."""
    api.complete(presence_penalty=0, frequency_penalty=0, repetition_penalty=1, min_p=0, logit_bias={"7": 0})
    assert api.service.generations[0].logit_rules is None


@pytest.mark.parametrize("ask", [Api.complete, Api.chat])
def test_tokens_that_end_a_text_are_too_many_together_with_the_targets_own(api: Api, ask: Any) -> None:
    """A session has room for 64; the target has two, 0 and 1."""
    answer = ask(api, stop_token_ids=list(range(2, 65)))
    what = "stop_token_ids: 63 in addition to 2 of the target's own are too many; send at most 62, or ignore_eos"
    assert refused(answer, "stop_token_ids", code="malformed") == what
    assert ask(api, stop_token_ids=list(range(64))).status_code == 200  # its own among them
    assert ask(api, stop_token_ids=list(range(2, 66)), ignore_eos=True).status_code == 200


@pytest.mark.parametrize("body", LARGEST)
def test_whatever_is_taken_fits_into_the_message_that_opens_a_session(api: Api, body: dict[str, Any]) -> None:
    """Else the user would be told of a message that he did not send."""
    assert api.complete(**body, max_tokens=4).status_code == 200
    for generation in api.service.generations:
        opened = Text(generation).open(1, 0.0, num_hops=0)
        assert decode_up(encode(opened, MAX_MESSAGE_BYTES), MAX_MESSAGE_BYTES) == opened
