"""Members of requests that are ignored: by name, wherever they stand, and never in silence."""

from typing import Any

import pytest

from draft_node.http.schema.strict import IGNORED, MAX_IGNORED
from tests.draft_node.http.fake import Api, error_of

CACHE = {"type": "ephemeral"}


def told(answer: Any) -> str | None:
    """The names of what was ignored."""
    assert answer.status_code == 200, answer.text
    names: str | None = answer.headers.get("X-GoodSpeed-Ignored")
    return names


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", sorted(IGNORED))
def test_what_is_for_other_servers_is_ignored_and_said(api: Api, name: str, stream: bool) -> None:
    for ask in (api.complete, api.chat):
        assert told(ask(**{name: {"any": ["thing"]}}, stream=stream)) == name


def test_nothing_is_said_where_nothing_is_ignored(api: Api) -> None:
    assert told(api.complete()) is None
    assert told(api.chat(verbosity="medium", continue_final_message=False, skip_special_tokens=True)) is None
    assert told(api.client.get("/health")) is None


def test_they_are_ignored_in_messages_and_their_parts(api: Api) -> None:
    part = {"type": "text", "text": "hi", "cache_control": CACHE}
    message = {"role": "user", "content": [part], "cache_control": CACHE}
    assert told(api.chat(messages=[message, message], session_id="1")) == "cache_control, session_id"
    assert told(api.client.post("/tokenize", json={"messages": [message]})) == "cache_control"


def test_a_refusal_says_what_was_ignored_too(api: Api) -> None:
    answer = api.chat(cache_control=CACHE, temperature=9)
    assert error_of(answer)["param"] == "temperature"
    assert api.chat(model="other", cache_control=CACHE).headers["X-GoodSpeed-Ignored"] == "cache_control"


SAID = {"role": "user", "content": "hi"}
BLOCKS = [{"type": f"{first}{second}_tool_result"} for first in "abcdefghij" for second in "abcdefghij"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("messages", {"max_tokens": 1, "messages": [SAID, {"role": "assistant", "content": BLOCKS}, SAID]}),
        ("responses", {"input": [SAID, *({"type": f"web_search_call_20{i:02}_01_01"} for i in range(100))]}),
    ],
)
def test_of_very_many_names_some_are_said(api: Api, path: str, body: dict[str, Any]) -> None:
    """The header would else be as long as the body, and many clients refuse such a header."""
    answer = api.client.post(f"/v1/{path}", json=body)
    assert len(set((told(answer) or "").split(", "))) == MAX_IGNORED


def test_a_name_that_is_ignored_once_is_ignored_again(api: Api) -> None:
    blocks = [{"type": "text", "text": "hi", **{f"x{i}": 1 for i in range(MAX_IGNORED)}}] * 2
    body = {"max_tokens": 1, "messages": [{"role": "user", "content": blocks}]}
    answer = api.client.post("/v1/messages", json=body, headers={"anthropic-beta": "x"})
    assert len((told(answer) or "").split(", ")) == MAX_IGNORED
