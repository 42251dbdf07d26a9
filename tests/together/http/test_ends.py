"""A draft node with HTTP ends: it refuses new requests, and finishes running ones."""

import signal
from typing import Any

import openai
import pytest
from httpx2 import Client

from tests.together.http.conftest import draft_node, official
from tests.together.http.test_texts import MODEL

pytestmark = pytest.mark.nodes

ENDLESS: dict[str, Any] = {"model": MODEL, "prompt": "The river", "seed": 1, "extra_body": {"ignore_eos": True}}


def test_it_drains_and_ends(endpoint: str) -> None:
    """A stream that runs when SIGTERM comes is finished, while new requests and `/ready` are refused."""
    with draft_node(endpoint) as (node, url), official(url) as client:
        stream = client.completions.create(**ENDLESS, max_tokens=400, stream=True, logprobs=0)
        num_tokens = len(next(stream).choices[0].logprobs.tokens)
        node.process.send_signal(signal.SIGTERM)
        with Client(base_url=url) as plain:
            answer = plain.get("../ready")
            while answer.status_code == 200:
                answer = plain.get("../ready")
            assert answer.json()["error"]["code"] == "draining"
            assert plain.get("../health").status_code == 200
        with pytest.raises(openai.InternalServerError, match="shutting down") as refused:
            client.completions.create(**ENDLESS, max_tokens=5)
        assert refused.value.status_code == 503
        assert refused.value.response.headers["retry-after"]
        for chunk in stream:
            choice = chunk.choices[0]
            num_tokens += len(choice.logprobs.tokens) if choice.logprobs else 0
        assert (num_tokens, choice.finish_reason) == (400, "length")
        assert node.end() == 0
    assert node.events[-1]["all_finished"]
    assert node.events[-1]["num_tokens"] == 400
    assert any(line.text == "goodspeed-draft: stopping: no text is running any more" for line in node.log)


def test_what_is_not_finished_in_time_is_cut_off_and_said(endpoint: str) -> None:
    with draft_node(endpoint, module="tests.draft_node.hasty") as (node, url):
        with official(url) as client:
            stream = client.completions.create(**ENDLESS, max_tokens=2000, stream=True)
            next(stream)
            node.process.send_signal(signal.SIGTERM)
            with pytest.raises(openai.APIError, match="shutting down"):
                list(stream)
        assert node.end() == 130
    assert not node.events[-1]["all_finished"]
