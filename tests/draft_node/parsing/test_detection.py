"""Formats told from what chat templates say, and named by hand."""

import pytest

from draft_node.parsing.formats import THINKING, TOOLS, formats_of
from goodspeed.engine.tokenizing.chat_template import variables
from tests.chats import MISTRAL, PLAIN, QWEN3, R1

LLAMA = 'Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}.'
CODER = "{{- '<tool_call>\\n<function=' + call.name + '>\\n' }}{{ '<parameter=' + key + '>' }}"


@pytest.mark.parametrize(
    ("template", "thinking", "tools"),
    [
        (QWEN3, "think", "hermes"),
        (R1, "think", None),
        (MISTRAL, None, "mistral"),
        (CODER, None, "qwen3_coder"),
        (LLAMA, None, "llama3_json"),
        ("{{- '<|python_tag|>' }}", None, "llama3_json"),
        ("[THINK]...[/THINK][TOOL_CALLS]", "mistral", "mistral"),
        ("{%- set content = message.content.split('</think>')[-1] %}", "think", None),
        ("<think></think><tool_call>f\n<arg_key>a</arg_key>", "think", None),
        (PLAIN, None, None),
        (None, None, None),
    ],
)
def test_formats_of_templates(template: str | None, thinking: str | None, tools: str | None) -> None:
    found = formats_of(template)
    assert found.thinking == (THINKING[thinking] if thinking else None)
    assert found.tools == (TOOLS[tools] if tools else None)


def test_a_name_counts_more_than_the_template() -> None:
    found = formats_of(QWEN3, tools="mistral", thinking="none")
    assert (found.thinking, found.tools) == (None, TOOLS["mistral"])
    markers = ("<think>", "</think>", "<tool_call>", "</tool_call>")
    assert formats_of(None, tools="hermes", thinking="think").markers == markers


def test_variables_of_templates() -> None:
    assert {"enable_thinking", "tools", "messages"} <= variables(QWEN3)
    assert "tools" in variables("{% if not tools is defined %}{% set tools = none %}{% endif %}")
    assert "tools" not in variables("{{ my_tools }}")
    assert "tools" not in variables("{% if xml_tools %}You have <tools></tools>{% endif %}"), "SmolLM3"
    assert "tools" not in variables("{% for message in messages %}{{ message['tools'] }}{% endfor %}"), "Phi-4-mini"
    assert "thinking" not in variables("First draft your thinking process."), "Magistral"
    assert variables("{% for a in y %}{% generation %}{{ x }}{% break %}{%- endgeneration -%}{% endfor %}") == {
        "x",
        "y",
    }
    assert "tools" in variables("{% if tools")
