"""Text that the draft model wrote alone is marked in every kind of answer; other marks are only for those who ask."""

from typing import Any

import pytest

from tests.draft_node.http.fake import Api
from tests.draft_node.http.test_answers import chunks_of

ASK = pytest.mark.parametrize("ask", [Api.complete, Api.chat])


@pytest.fixture
def api() -> Api:
    """A service whose texts have five tokens, the last three of them written by the draft model alone."""
    api = Api()
    api.service.local_from = 2
    return api


def text_of(choice: dict[str, Any]) -> str:
    return str(choice.get("text") or choice.get("delta", {}).get("content") or "")


@ASK
def test_whole(api: Api, ask: Any) -> None:
    answer = ask(api, max_tokens=5, n=2).json()
    assert [choice["goodspeed"] for choice in answer["choices"]] == [{"local_tokens": 3}] * 2
    assert answer["usage"]["goodspeed"]["local"] == 6
    api.service.local_from = None
    answer = ask(api, max_tokens=5).json()
    assert "goodspeed" not in answer["choices"][0]
    assert answer["usage"]["goodspeed"]["local"] == 0


@ASK
def test_streamed(api: Api, ask: Any) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    *chunks, last = chunks_of(ask(api, max_tokens=5, stream=True, stream_options=options))
    told = [(text_of(choice), choice.get("goodspeed")) for chunk in chunks for choice in chunk["choices"]]
    mark = {"local": True}
    marks = [("a", None), ("b", None), ("c", mark), ("d", mark), ("e", mark), ("", {"local_tokens": 3})]
    assert [one for one in told if one != ("", None)] == marks
    assert [chunk["usage"]["goodspeed"]["local"] for chunk in chunks if text_of(chunk["choices"][0])] == [0, 0, 1, 2, 3]
    assert last["usage"]["goodspeed"]["local"] == 3


@ASK
def test_beside_accepted_ones(api: Api, ask: Any) -> None:
    chunks = chunks_of(ask(api, max_tokens=3, stream=True, goodspeed={"mark_accepted": True}))
    assert [chunk["choices"][0]["goodspeed"] for chunk in chunks if text_of(chunk["choices"][0])] == [
        {"spans": [{"text": "a", "accepted": True}]},
        {"spans": [{"text": "b", "accepted": False}]},
        {"spans": [{"text": "c", "accepted": False, "local": True}], "local": True},
    ]
