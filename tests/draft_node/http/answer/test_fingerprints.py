"""Every answer names the target that wrote it."""

import json
from typing import Any

import pytest

from tests.draft_node.http.fake import Api, events_of


def fingerprints(answer: Any) -> set[str | None]:
    """The fingerprints in all chunks of a stream."""
    return {json.loads(event)["system_fingerprint"] for event in events_of(answer)[:-1]}


@pytest.mark.parametrize("ask", [Api.complete, Api.chat])
def test_every_answer_and_every_chunk_names_the_target(ask: Any) -> None:
    assert ask(Api(), max_tokens=3).json()["system_fingerprint"] == "fp_b1"
    assert fingerprints(ask(Api(), max_tokens=3, stream=True, stream_options={"include_usage": True})) == {"fp_b1"}


@pytest.mark.parametrize("ask", [Api.complete, Api.chat])
def test_under_the_ratio_rule_the_draft_model_has_a_part_in_it(ask: Any) -> None:
    assert ask(Api(verification="ratio"), max_tokens=3).json()["system_fingerprint"] == "fp_b1_d1"


def test_the_node_names_both_models() -> None:
    models = {"target": "big-model", "target_fingerprint": "b1", "draft": "small-model", "draft_fingerprint": "d1"}
    api = Api()
    assert api.client.get("/v1/models").json()["data"][0]["goodspeed"] == models
    ready = {"status": "ready", "target": "big-model", "target_fingerprint": "b1"}
    assert api.client.get("/ready").json() == ready
