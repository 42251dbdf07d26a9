"""A last message of the assistant is continued, or refused by name; a new turn only follows where it is asked for."""

from typing import Any

import pytest

from draft_node.core.actions import Deliver
from draft_node.core.generation import Generation
from draft_node.parsing.parser import Continued, ParserSettings
from draft_node.service.output_processor import OutputProcessor
from draft_node.service.token_text import TokenTexts
from goodspeed.engine.tokenizing.text import NOT_CONTINUED, Inputs, encode_chat
from goodspeed.errors import PromptError
from goodspeed.wire.messages import Sampling
from tests.chats import PLAIN, QWEN3, R1, function, ids_of, tokenizer
from tests.draft_node.http.ask.test_tools import TOOLS, api, call, message_of, streamed
from tests.draft_node.http.fake import USER, refused

BEGUN = {"role": "assistant", "content": "The capital is"}
SWITCHES = ("continue_final_message", "add_generation_prompt")
TRIMMING = """\
{%- for message in messages %}{{- '<|' + message.role + '|>' + message.content.strip() + '<|im_end|>' }}{%- endfor %}"""
DROPPING = "{%- for message in messages[:-1] %}{{- message.role + ':' + message.content }}{%- endfor %}"


@pytest.mark.parametrize("ask", [message_of, streamed])
@pytest.mark.parametrize("template", [QWEN3, PLAIN, R1])
def test_an_answer_goes_on_from_the_last_message(ask: Any, template: str) -> None:
    here = api(" Rome.<|im_end|>", template)
    message, _ = ask(here.chat(messages=[USER, BEGUN], stream=ask is streamed))
    assert message["content"] == " Rome."  # no blank is left out: the text was cut there
    assert "reasoning" not in message  # the template's own opening of the thinking is not there
    assert here.prompt.endswith("The capital is")


def test_every_way_to_ask_goes_on() -> None:
    here = api(" Rome.<|im_end|>")
    parts = {"role": "assistant", "content": [{"type": "text", "text": text} for text in ("The capital", "is", "")]}
    assert here.chat(messages=[USER, parts]).status_code == 200
    asked = here.client.post("/v1/messages", json={"messages": [USER, parts], "max_tokens": 9})
    assert asked.json()["content"] == [{"type": "text", "text": " Rome."}]
    assert here.client.post("/v1/responses", json={"input": [USER, BEGUN]}).status_code == 200
    assert len(here.service.prompts) == 3
    assert all(one.endswith("assistant\nThe capital\nis") for one in here.service.prompts[:2])
    assert here.prompt.endswith("assistant\nThe capital is")
    body: dict[str, Any] = {"messages": [USER, BEGUN]}
    num_tokens = here.chat(**body).json()["usage"]["prompt_tokens"]
    assert here.client.post("/tokenize", json=body).json()["count"] == num_tokens
    assert here.client.post("/v1/messages/count_tokens", json=body).json()["input_tokens"] == num_tokens
    body["add_generation_prompt"] = True
    anew = here.client.post("/tokenize", json=body).json()["count"]
    assert anew == here.chat(**body).json()["usage"]["prompt_tokens"] > num_tokens


@pytest.mark.parametrize(
    ("asked", "goes_on"),
    [
        ({"continue_final_message": True}, True),
        ({"continue_final_message": True, "add_generation_prompt": False}, True),
        ({"add_generation_prompt": False}, True),
        ({"continue_final_message": None, "add_generation_prompt": None}, True),
        ({"continue_final_message": False}, False),
        ({"add_generation_prompt": True}, False),
        ({"continue_final_message": False, "add_generation_prompt": True}, False),
    ],
)
def test_a_new_turn_begins_where_it_is_asked_for(asked: dict[str, Any], goes_on: bool) -> None:
    here = api(" Rome.")
    assert here.chat(messages=[USER, BEGUN], **asked).status_code == 200
    assert here.prompt.endswith("The capital is") is goes_on
    assert here.prompt.endswith("<|im_start|>assistant\n") is not goes_on


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"continue_final_message": True}, "continue_final_message"),
        ({"add_generation_prompt": False}, "add_generation_prompt"),
        ({"messages": [USER, BEGUN], **dict.fromkeys(SWITCHES, True)}, "add_generation_prompt"),
        ({"messages": [USER, BEGUN], **dict.fromkeys(SWITCHES, False)}, "add_generation_prompt"),
        ({"messages": [USER, {**BEGUN, "tool_calls": [{"id": "a", **call()}]}]}, "messages.1.tool_calls"),
        ({"messages": [USER, BEGUN], "tools": TOOLS, "tool_choice": "required"}, "messages"),
        ({"messages": [USER, BEGUN], "tools": [function(strict=True)]}, "messages"),
        ({"messages": [USER, BEGUN], "response_format": {"type": "json_object"}}, "messages"),
        ({"messages": [USER, BEGUN], "structured_outputs": {"regex": "[ab]+"}}, "messages"),
    ],
)
def test_what_cannot_be_continued_is_refused_by_name(body: dict[str, Any], param: str) -> None:
    message = refused(api("x").chat(**body), param)
    assert message.startswith(param) or "contradict" in message


def test_tools_may_be_called_in_what_goes_on() -> None:
    says = ' look.\n<tool_call>\n{"name": "time", "arguments": {}}\n</tool_call><|im_end|>'
    message, reason = message_of(api(says).chat(messages=[USER, {**BEGUN, "content": "Let me"}], tools=TOOLS))
    assert (message["content"], message["tool_calls"], reason) == (" look.", [call("time", "{}")], "tool_calls")


@pytest.mark.parametrize(
    ("content", "says", "thought", "said"),
    [
        ("<think>\nThe user", " asks.\n</think>\n\nRome.", " asks.", "Rome."),
        ("<think>\n\n</think>\n\n", "Rome.", None, "Rome."),
        ("It", " is <think>x</think>.", None, " is <think>x</think>."),
        ("It is ", "<think>x", None, "<think>x"),
    ],
)
def test_thinking_goes_on_where_it_was_cut(content: str, says: str, thought: str | None, said: str) -> None:
    message, _ = message_of(api(says).chat(messages=[USER, {**BEGUN, "content": content}]))
    assert (message.get("reasoning_content"), message["content"]) == (thought, said)


def test_the_end_of_the_message_is_the_end_of_the_prompt_or_it_is_refused() -> None:
    for template in (PLAIN, QWEN3, TRIMMING):
        here = tokenizer(template)
        for content in ("end", "<|im_end", "im_end|>", " The capital", ""):
            ids = encode_chat(here, [USER, {**BEGUN, "content": content}], Inputs(continues=True))
            said = content.lstrip() if template == TRIMMING else content
            assert here.decode(ids).endswith((f"assistant\n{said}", f"assistant: {said}", f"assistant|>{said}"))
    blank = [USER, {**BEGUN, "content": "The "}]
    assert tokenizer(PLAIN).decode(encode_chat(tokenizer(PLAIN), blank, Inputs(continues=True))).endswith("The ")
    for template in (TRIMMING, DROPPING):
        with pytest.raises(PromptError) as error:
            encode_chat(tokenizer(template), blank, Inputs(continues=True))
        assert str(error.value) == NOT_CONTINUED


@pytest.mark.parametrize(("continued", "said"), [(None, "Rome"), ("text", " Rome")])
def test_the_blank_that_a_template_leaves_belongs_to_a_continued_text(continued: Continued | None, said: str) -> None:
    here = tokenizer()
    generation = Generation(bytes(16), (), Sampling(), 9, is_chat=True)
    answer = OutputProcessor(here, TokenTexts(here), generation, ParserSettings(continued=continued))
    assert answer.take(Deliver(tuple(ids_of(" Rome")), ())).text == said
