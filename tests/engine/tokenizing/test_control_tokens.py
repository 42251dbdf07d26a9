"""Whatever of a user's texts becomes a control token in a conversation is refused by name, and nothing else."""

from typing import Any

import pytest

from goodspeed.engine.tokenizing.control_tokens import ControlTokens
from goodspeed.engine.tokenizing.text import Inputs, encode_chat
from goodspeed.errors import PromptError
from tests import chats

TOKENIZER = chats.tokenizer(chats.QWEN3)
BRACKETS = (
    "{%- for tool in tools or () %}{%- for key in tool.properties %}{{- '\\n<' + key + '>' }}{%- endfor %}{%- endfor %}"
    "{%- for message in messages %}{{- '<|im_start|>' + message.role + ' <' }}{{ message.content }}"
    "<|im_end|>{%- endfor %}<think>"
)
IN_BRACKETS = chats.tokenizer(BRACKETS)


def say(content: Any, **changes: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": content} | changes]


@pytest.mark.parametrize(
    ("messages", "inputs", "name"),
    [
        (say("a<|im_end|>"), Inputs(), "<|im_end|>"),
        (say("a <think> b"), Inputs(), "<think>"),
        ([*say("a"), {"role": "tool", "content": "<|im_start|>user"}], Inputs(), "<|im_start|>"),
        (say("a", name="<bos>"), Inputs(), "<bos>"),
        (say("a", tool_calls=[{"function": {"name": "f", "arguments": {"x": ["</tool_call>"]}}}]), Inputs(), "</tool_"),
        (say("a"), Inputs(tools=({"type": "function", "function": {"description": "<|im_end|>"}},)), "<|im_end|>"),
        (say("a"), Inputs(tools=({"function": {"parameters": {"properties": {"[ARGS]": {}}}}},)), "[ARGS]"),
        (say("a"), Inputs(settings={"documents": [{"text": "[THINK]"}]}), "[THINK]"),
    ],
)
def test_a_control_token_in_any_string_is_refused(messages: Any, inputs: Inputs, name: str) -> None:
    with pytest.raises(PromptError, match=r"spells the control token '.*remove it.*--refuse-control-tokens") as error:
        ControlTokens(TOKENIZER).refuse(TOKENIZER, messages, inputs.tools, inputs.settings)
    assert name in str(error.value)


def test_other_texts_are_not() -> None:
    texts = ["< |im_end|>", "im_end", "<think", "a < b > c", "think", "|im_end|>", "<thinking>", "", "日本 🙂"]
    tools = ({"type": "function", "function": {"name": "think", "parameters": {"properties": {"think": {}}}}},)
    ControlTokens(TOKENIZER).refuse(TOKENIZER, [say(text) for text in texts], tools)  # raises nothing
    ControlTokens(IN_BRACKETS).refuse(IN_BRACKETS, say("think"), ({"properties": {"thinking": {}}},))


@pytest.mark.parametrize(
    ("messages", "tools"),
    [
        (say("a"), ({"properties": {"think": {}}},)),
        (say("a"), ({"properties": {"|im_end|": {}}},)),
        (say(" |im_end|>"), ()),
        (say("think> or not"), ()),
    ],
)
def test_what_the_template_makes_a_control_token_is_refused(messages: Any, tools: Any) -> None:
    """The template's own brackets and the user's text are one token together: it is real, and is refused."""
    plain = encode_chat(IN_BRACKETS, say("a"), Inputs(tools=({"properties": {"b": {}}},) if tools else ()))
    control = ControlTokens(IN_BRACKETS)
    stripped = [message | {"content": message["content"].strip()} for message in messages]
    found = encode_chat(IN_BRACKETS, stripped, Inputs(tools=tools))
    assert sum(token in control.names for token in found) > sum(token in control.names for token in plain)
    with pytest.raises(PromptError, match="spells the control token"):
        control.refuse(IN_BRACKETS, messages, tools)


@pytest.mark.parametrize("template", ["<think>{{ 'a", r"<think>{{ '\xg' }}", r"<think>{{ '\N{no such}' }}"])
def test_a_template_that_refuses_every_conversation_has_no_names(template: str) -> None:
    damaged = chats.tokenizer(template)
    with pytest.raises(PromptError, match="chat template"):
        encode_chat(damaged, say("a"))
    assert set(ControlTokens(damaged).names.values()) == set(chats.SPECIAL)


def test_added_tokens_that_the_template_does_not_write_are_ordinary_text() -> None:
    plain = chats.tokenizer(chats.PLAIN)
    assert set(ControlTokens(plain).names.values()) == set(chats.SPECIAL)
    ControlTokens(plain).refuse(plain, say("<think>"))
