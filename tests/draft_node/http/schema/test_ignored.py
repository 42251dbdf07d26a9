"""Requests may have members for other servers, images and the like: they are ignored by name, never in silence."""

from typing import Any

import pytest

from draft_node.http.schema.strict import IGNORED, MAX_IGNORED
from tests.draft_node.http.ask.test_tools import call
from tests.draft_node.http.fake import USER, Api, ignored_of, refused
from tests.draft_node.http.speaking import speaking

CACHE = {"type": "ephemeral"}
BLOCKS = [{"type": f"{first}{second}_tool_result"} for first in "abcdefghij" for second in "abcdefghij"]
TEXT = {"type": "text", "text": "Look:"}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}}
SOUND = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
FILE = {"type": "file", "file": {"file_data": "AAAA"}}
SEEN, HEARD, READ = (f"Look:\n[{what} that this model cannot read]" for what in ("an image", "a recording", "a file"))
CALLING = {"role": "assistant", "tool_calls": [{"id": "c1", **call("shoot", "{}")}]}
BY_A_TOOL = {"role": "tool", "tool_call_id": "c1"}
TOOLS = [{"type": "function", "function": {"name": "shoot"}}]  # without parameters
ASSISTANT = {"role": "assistant", "content": "A cat."}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", sorted(IGNORED))
def test_what_is_for_other_servers_is_ignored_and_said(api: Api, name: str, stream: bool) -> None:
    for ask in (api.complete, api.chat):
        assert ignored_of(ask(**{name: {"any": ["thing"]}}, stream=stream, max_tokens=1)) == [name]


def test_nothing_is_said_where_nothing_is_ignored(api: Api) -> None:
    asked = api.chat(verbosity="medium", continue_final_message=False, skip_special_tokens=True)
    for answer in (api.complete(), asked, api.client.get("/health")):
        assert "X-GoodSpeed-Ignored" not in answer.headers
        assert answer.status_code == 200


def test_they_are_ignored_in_messages_and_their_parts(api: Api) -> None:
    part = {"type": "text", "text": "hi", "cache_control": CACHE}
    message = {"role": "user", "content": [part], "cache_control": CACHE}
    assert ignored_of(api.chat(messages=[message, message], session_id="1")) == ["cache_control", "session_id"]
    assert ignored_of(api.client.post("/tokenize", json={"messages": [message]})) == ["cache_control"]


def test_what_the_assistant_refused_is_what_it_said() -> None:
    api, said = speaking(), {"role": "assistant", "refusal": "I cannot."}
    for content in ({}, {"content": None}):
        assert api.chat(messages=[USER, {**said, **content}, USER]).status_code == 200
        assert "I cannot." in api.prompt
    assert ignored_of(api.chat(messages=[USER, {**said, "content": "Well."}, USER])) == ["refusal"]
    assert "Well." in api.prompt
    assert "I cannot." not in api.prompt


def test_a_refusal_says_what_was_ignored_too(api: Api) -> None:
    refused(api.chat(cache_control=CACHE, temperature=9), "temperature")
    assert api.chat(model="other", cache_control=CACHE).headers["X-GoodSpeed-Ignored"] == "cache_control"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("messages", {"messages": [USER, {"role": "assistant", "content": BLOCKS}, USER]}),
        ("responses", {"input": [USER, *({"type": f"web_search_call_20{i:02}_01_01"} for i in range(100))]}),
    ],
)
def test_of_very_many_names_some_are_said(api: Api, path: str, body: dict[str, Any]) -> None:
    """The header would else be as long as the body, and many clients refuse such a header."""
    assert len(set(ignored_of(api.ask(path, **body)))) == MAX_IGNORED


def test_a_name_that_is_ignored_once_is_ignored_again(api: Api) -> None:
    blocks = [{"type": "text", "text": "hi", **{f"x{i}": 1 for i in range(MAX_IGNORED)}}] * 2
    body = {"max_tokens": 1, "messages": [{"role": "user", "content": blocks}]}
    answer = api.client.post("/v1/messages", json=body, headers={"anthropic-beta": "x"})
    assert len(ignored_of(answer)) == MAX_IGNORED


# -- images, recordings, files -----------------------------------------------------------------------------------------


def shown(part: dict[str, Any], **turn: Any) -> dict[str, Any]:
    return {"role": "user", "content": [TEXT, part], **turn}


@pytest.mark.parametrize(
    ("body", "said", "name"),
    [
        ({"messages": [shown(IMAGE), ASSISTANT, USER]}, f"user\n{SEEN}<", "image_url"),
        ({"messages": [shown(SOUND), ASSISTANT, USER]}, f"user\n{HEARD}<", "input_audio"),
        ({"messages": [shown(FILE), ASSISTANT, USER]}, f"user\n{READ}<", "file"),
        ({"messages": [USER, CALLING, shown(IMAGE, **BY_A_TOOL)]}, f"<tool_response>\n{SEEN}\n", "image_url"),
        ({"messages": [shown(IMAGE)], "tools": TOOLS}, SEEN, "image_url"),
    ],
    ids=["an image before", "a recording before", "a file before", "by a tool", "to an agent"],
)
def test_what_an_earlier_turn_or_a_tool_shows_or_an_agents_user_is_a_sentence(body, said, name):
    """An agent would send the image with every later turn, and each of them would be refused."""
    api = speaking()
    assert ignored_of(api.chat(**body)) == [name]
    assert said in api.prompt


def test_a_question_about_an_image_is_refused(api: Api) -> None:
    for turns in ([], [USER, ASSISTANT]):
        answer = api.chat(messages=[*turns, shown(IMAGE)])
        what = "messages must not end with a question about an image, which this model"
        assert refused(answer, "messages", code="unsupported_parameter").startswith(what)
