"""A node knows what its chat template supports, and the settings that it is given."""

from typing import Any
from unittest.mock import Mock

import pytest

from draft_node.parsing.formats import TOOLS
from draft_node.parsing.parser import ONLY_CONTENT
from draft_node.service import chat_support
from draft_node.service.chat_support import ChatSupport, reasoning_state
from goodspeed.engine.tokenizing.text import NOTHING
from goodspeed.errors import ConfigError
from tests.chats import MISTRAL, QWEN3, R1, ids_of, tokenizer

STRICT = """\
{%- for m in messages %}
    {%- if m.role == 'system' and not loop.first %}{{- raise_exception('only at the beginning') }}{%- endif %}
    {{- m.role + ':' + m.content + ';' }}
{%- endfor %}"""
WITHOUT = """\
{%- for m in messages %}
    {%- if m.role == 'system' %}{{- raise_exception('no system here') }}{%- endif %}
    {{- m.role + ':' + m.content + ';' }}
{%- endfor %}"""

ALTERNATING = """\
{%- for m in messages %}
    {%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{- raise_exception('must alternate') }}{%- endif %}
    {{- m.role + ':' + m.content + ';' }}
{%- endfor %}"""
"""As Gemma's."""


def test_special_tokens_that_are_no_markers_are_hidden() -> None:
    forms = ChatSupport.of(tokenizer(MISTRAL))
    parser = forms.parser({"f": {}})
    assert parser.formats.tools is TOOLS["mistral"]
    shown = set(forms.special.values()) - set(parser.hidden or ())
    assert shown == {forms.special["[TOOL_CALLS]"], forms.special["[ARGS]"]}
    plain = ChatSupport.of(tokenizer(QWEN3)).parser({"f": {}})
    assert plain.hidden is None  # its markers are no special tokens


def test_where_nothing_is_to_be_found_nothing_is_taken_apart() -> None:
    assert ChatSupport.of(tokenizer(MISTRAL)).parser(None) == ONLY_CONTENT
    assert ChatSupport.of(tokenizer(None)).parser(None) == ONLY_CONTENT
    assert ChatSupport.of(tokenizer(QWEN3)).parser(None).formats.tools is None


def test_a_template_for_tools_of_its_own() -> None:
    templates = {"default": "{{ messages }}", "tool_use": "{{ tools }}<tool_call>"}
    forms = ChatSupport.of(tokenizer(templates))
    assert forms.takes_tools
    assert forms.formats.tools is TOOLS["hermes"]
    assert (forms.knows("tools"), forms.knows("tools", tools=True)) == (False, True)


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"loud": 1}, "does not know"),
        ({"tools": 1}, "must not set 'tools'"),
        ({"enable_thinking": [[[[[[[[1]]]]]]]]}, "more than 8"),
    ],
)
def test_settings_of_the_node_that_are_wrong(settings: dict[str, Any], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        ChatSupport.of(tokenizer(QWEN3), settings=settings)


def test_prompts_that_open_the_thinking() -> None:
    parser = ChatSupport.of(tokenizer(R1)).parser(None)
    here = tokenizer()
    assert reasoning_state(here, tuple(ids_of("<|im_start|>assistant\n<think>\n")), parser) == "open"
    assert reasoning_state(here, tuple(ids_of("<think>\n\n</think>\n\n")), parser) == "closed"
    assert reasoning_state(here, tuple(ids_of("say <think><|im_end|>\n<|im_start|>assistant\n")), parser) == "may"
    assert reasoning_state(here, tuple(ids_of("<think>\n")), ONLY_CONTENT) == "closed"


@pytest.mark.parametrize(
    ("template", "system"),
    [
        (R1, "any"),
        (MISTRAL, "any"),
        (QWEN3, "first"),  # it leaves out later ones without a word
        (STRICT, "first"),
        (WITHOUT, "none"),
        ("{{- raise_exception('never') }}", "any"),
        (None, "any"),
    ],
)
def test_which_messages_of_the_system_a_template_shows(template: str | None, system: str) -> None:
    assert ChatSupport.of(tokenizer(template)).system == system


@pytest.mark.parametrize(
    ("turns", "first", "none"),
    [
        ("s1 u1 a1 u2", "s1 u1 a1 u2", "u:1+1 a1 u2"),
        ("s1 s2 u1", "s:1+2 u1", "u:1+2+1"),
        ("u1 s1 a1", "u:1+1 a1", "u:1+1 a1"),
        ("s1 u1 a1 s2 u2", "s1 u1 a1 u:2+2", "u:1+1 a1 u:2+2"),
        ("s1 u1 a1 t1 s2 s3 a2 u2", "s1 u1 a1 t1 u:2+3 a2 u2", "u:1+1 a1 t1 u:2+3 a2 u2"),
        ("s1 u1 a1 t1 s2", "s1 u1 a1 t1 u2", "u:1+1 a1 t1 u2"),
        ("s1 u1 a1 s2 t1", "s1 u1 a1 t1 u2", "u:1+1 a1 t1 u2"),
        ("s1 u1 a1 t1 s2 t2 s3 u2", "s1 u1 a1 t1 t2 u:2+3+2", "u:1+1 a1 t1 t2 u:2+3+2"),
        ("s1 u1 a1 s2 t1 a2", "s1 u1 a1 t1 u2 a2", "u:1+1 a1 t1 u2 a2"),
        ("u1 s1 u2", "u1 u:1+2", "u1 u:1+2"),
        ("s1", "s1", "u1"),
        ("s1 a1 s2 u1", "s1 a1 u:2+1", "u1 a1 u:2+1"),
    ],
)
def test_no_message_of_the_system_is_lost(turns: str, first: str, none: str) -> None:
    """s1 is the system's message "1"; u:1+2 a user's, of two texts with a blank line between."""
    roles = {"s": "system", "u": "user", "a": "assistant", "t": "tool"}

    def of(text: str) -> list[dict[str, str]]:
        return [{"role": roles[one[0]], "content": one[1:].lstrip(":").replace("+", "\n\n")} for one in text.split()]

    given = of(turns)
    assert ChatSupport(system="any").shown(given, NOTHING)[0] == given
    assert ChatSupport(system="first").shown(given, NOTHING)[0] == of(first)
    assert ChatSupport(system="none").shown(given, NOTHING)[0] == of(none)
    assert given == of(turns)


def test_messages_in_a_row_become_one_where_the_template_wants_turns_to_alternate() -> None:
    chats = ChatSupport.of(tokenizer(ALTERNATING))
    assert (chats.system, chats.alternates) == ("none", True)
    turns = [{"role": "system", "content": "Be brief."}]
    turns += [{"role": "user", "content": "<env>"}, {"role": "user", "content": "Hello"}]
    turns += [{"role": "assistant", "content": "Hi."}, {"role": "assistant", "content": "Well?"}]
    shown, _ = chats.shown([*turns, {"role": "user", "content": "Bye"}], NOTHING)
    said = "user:Be brief.\n\n<env>\n\nHello;assistant:Hi.\n\nWell?;user:Bye;"
    assert chats.tokenizer.apply_chat_template(shown, tokenize=False) == said


MISTRALS = """\
{%- set turns = messages | rejectattr('role', 'equalto', 'tool') | rejectattr('tool_calls', 'defined') | list %}
{%- for m in turns %}
    {%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{- raise_exception('must alternate') }}{%- endif %}
{%- endfor %}
{%- for m in messages %}
    {%- if m.tool_calls is defined %}{{- 'calls;' }}{%- else %}{{- m.role + ':' + m.content + ';' }}{%- endif %}
{%- endfor %}{{- tools }}"""
"""As Mistral's, which count neither calls nor results."""


def test_what_a_user_says_after_a_result_ends_it_where_the_template_wants_turns_to_alternate() -> None:
    chats = ChatSupport.of(tokenizer(MISTRALS))
    assert (chats.alternates, chats.results_end, chats.spells_tools) == (True, True, False)
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": {}}}
    turns: list[dict[str, Any]] = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "Let me see."}]
    turns += [{"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "content": "1"}]
    for more, said in (
        ([{"role": "user", "content": "Go on."}, {"role": "user", "content": "Now."}], "\n\nGo on.\n\nNow."),
        ([{"role": "system", "content": "Be brief."}], "\n\nBe brief."),
        ([], ""),
    ):
        shown, _ = chats.shown([*turns[:1], *turns[2:], *more], NOTHING)
        assert chats.tokenizer.apply_chat_template(shown, tokenize=False).startswith(f"user:q;calls;tool:1{said};")
    shown, _ = chats.shown([*turns, *turns[:1]], NOTHING)
    assert [turn["content"] for turn in shown] == ["q", "Let me see.", "", "1\n\nq"], "no text is lost"
    assert not ChatSupport.of(tokenizer(QWEN3)).results_end


def test_what_was_thought_is_joined_too_and_nobody_is_named_for_others() -> None:
    turns = [{"role": "assistant", "content": one, "reasoning_content": f"hm {one}"} for one in "ab"]
    turns += [{"role": "user", "content": "hi", "name": "ana"}, {"role": "user", "content": "yo"}]
    assert ChatSupport(alternates=True).shown(turns, NOTHING)[0] == [
        {"role": "assistant", "content": "a\n\nb", "reasoning_content": "hm a\n\nhm b"},
        {"role": "user", "content": "hi\n\nyo"},
    ]


def test_calls_in_a_row_stay_where_turns_have_to_alternate() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": {}}}
    turns: list[dict[str, Any]] = [
        {"role": "assistant", "content": "Let me see."},
        {"role": "assistant", "content": "", "tool_calls": [call]},
    ]
    turns += [{"role": "tool", "content": "1"}, {"role": "tool", "content": "2"}]
    assert ChatSupport(alternates=True).shown(turns, NOTHING)[0] == turns, "some templates write no text beside calls"
    assert not ChatSupport.of(tokenizer(QWEN3)).alternates


@pytest.mark.parametrize(("system", "most"), [("first", 100), ("none", 101)])
def test_messages_of_the_system_at_the_beginning_are_joined_once(system, most, monkeypatch):
    """Joining them one by one would copy all of them for each."""
    monkeypatch.setattr(chat_support, "_joined", joined := Mock(wraps=chat_support._joined))
    turns = [{"role": "system", "content": str(i)} for i in range(100)]
    [shown, *_] = ChatSupport(system=system).shown([*turns, {"role": "user", "content": "u"}], NOTHING)[0]
    assert shown["content"].startswith("0\n\n1\n\n")
    assert [len(call.args[1]) for call in joined.call_args_list] == [most]
