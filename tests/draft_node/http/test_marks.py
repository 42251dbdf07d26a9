"""Streams mark the accepted parts of a text for users who ask for it, and for no other."""

from typing import Any

import pytest

from tests.draft_node.http.fake import Api
from tests.draft_node.http.test_answers import chunks_of


@pytest.mark.parametrize("ask", [Api.complete, Api.chat])
def test_accepted_parts_are_marked_for_who_asks(ask: Any) -> None:
    marked = chunks_of(ask(Api(), max_tokens=2, stream=True, goodspeed={"mark_accepted": True}))
    told = [choice["goodspeed"] for chunk in marked for choice in chunk["choices"] if "goodspeed" in choice]
    assert [one for one in told if one["spans"]] == [
        {"spans": [{"text": "a", "accepted": True}]},
        {"spans": [{"text": "b", "accepted": False}]},
    ]
    plain = chunks_of(ask(Api(), max_tokens=2, stream=True))
    assert not any("goodspeed" in choice for chunk in plain for choice in chunk["choices"])
