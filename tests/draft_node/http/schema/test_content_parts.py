"""Images, recordings and files, which no text model can read: a sentence, named in a header, or a refusal."""

from typing import Any

import pytest

from tests.draft_node.http.fake import Api, error_of
from tests.draft_node.http.speaking import SpeakingService

TEXT = {"type": "text", "text": "Look: "}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}}
SOUND = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
FILE = {"type": "file", "file": {"file_data": "AAAA"}}
SEEN = "Look: [an image that this model cannot read]"
CALL = {"id": "c1", "type": "function", "function": {"name": "shoot", "arguments": "{}"}}
TOOLS = [{"type": "function", "function": {"name": "shoot"}}]
USER, ASSISTANT = {"role": "user", "content": "What is it?"}, {"role": "assistant", "content": "A cat."}


def asked(**body: Any) -> tuple[str, str | None]:
    """What the model was asked, and what the header names."""
    service = SpeakingService("x")
    answer = Api(service=service).client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    return service.prompts[-1], answer.headers.get("X-GoodSpeed-Ignored")


@pytest.mark.parametrize(
    ("part", "said", "name"),
    [
        (IMAGE, "[an image that this model cannot read]", "image_url"),
        (SOUND, "[a recording that this model cannot read]", "input_audio"),
        (FILE, "[a file that this model cannot read]", "file"),
    ],
)
def test_what_an_earlier_turn_has_is_a_sentence(part: dict[str, Any], said: str, name: str) -> None:
    prompt, named = asked(messages=[{"role": "user", "content": [TEXT, part]}, ASSISTANT, USER])
    assert f"user\nLook: {said}<" in prompt
    assert named == name


def test_what_a_tool_brings_is_a_sentence() -> None:
    turns = [USER, {"role": "assistant", "tool_calls": [CALL]}]
    prompt, named = asked(messages=[*turns, {"role": "tool", "tool_call_id": "c1", "content": [TEXT, IMAGE]}])
    assert f"<tool_response>\n{SEEN}\n" in prompt
    assert named == "image_url"


def test_an_agent_goes_on_also_if_its_user_shows_it_something() -> None:
    """It would send the image with every later turn, and each of them would be refused."""
    prompt, named = asked(messages=[{"role": "user", "content": [TEXT, IMAGE]}], tools=TOOLS)
    assert SEEN in prompt
    assert named == "image_url"


def test_a_question_about_an_image_is_refused(api: Api) -> None:
    for turns in ([], [USER, ASSISTANT]):
        error = error_of(api.chat(messages=[*turns, {"role": "user", "content": [TEXT, IMAGE]}]))
        assert error["message"].startswith("messages must not end with a question about an image, which this model")
        assert (error["param"], error["code"]) == ("messages", "unsupported_parameter")
