"""Formats of reasoning and tool calls by model family, their detection from chat templates, and parts of parsed texts.

Sources: the chat templates of Qwen2.5, Qwen3, Qwen3-Coder, Hermes 2 Pro, Llama 3.1 to 3.3, Mistral (v3 to v13),
Magistral and DeepSeek-R1. A format has the name of the corresponding vLLM parser, if there is one.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal, TypeAlias

CallSyntax = Literal["json", "xml", "mistral"]


@dataclass(frozen=True, slots=True)
class ThinkingFormat:
    """Markers around reasoning, which stands at the beginning of a text or after another marker."""

    name: str
    opens: str
    closes: str


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """Syntax of tool calls; each call begins with a marker."""

    name: str
    syntax: CallSyntax
    opens: tuple[str, ...]
    bare: str = ""  # opens a call at the beginning of a text or after a call; part of the call
    ends: tuple[str, ...] = ()  # markers that may follow a call
    inner: tuple[str, ...] = ()  # markers inside calls
    id_length: int = 24  # characters of a call's id; some families' templates check them
    id_prefix: str = "call_"
    follows_text: bool = True  # False: calls come only at the beginning, or after a marker or a call
    is_exact: bool = False  # a grammar writes the calls

    @property
    def markers(self) -> tuple[str, ...]:
        """All markers; some may be special tokens."""
        return (*self.opens, *self.ends, *self.inner)


@dataclass(frozen=True, slots=True)
class Formats:
    """Formats of one model; None: not supported by the model, or unknown."""

    thinking: ThinkingFormat | None = None
    tools: ToolFormat | None = None

    @property
    def markers(self) -> tuple[str, ...]:
        thinking = (self.thinking.opens, self.thinking.closes) if self.thinking is not None else ()
        return (*thinking, *(self.tools.markers if self.tools is not None else ()))

    def under_grammar(self, *, has_text: bool) -> "Formats":
        """Returns the formats of an answer under a grammar of calls. has_text: of text and calls, not of either."""
        if self.tools is None:
            return self
        return replace(self, tools=replace(self.tools, follows_text=has_text, is_exact=True))


NO_FORMATS = Formats()

THINKING = {
    one.name: one
    for one in (
        ThinkingFormat("think", "<think>", "</think>"),
        ThinkingFormat("mistral", "[THINK]", "[/THINK]"),
    )
}

TOOLS = {
    one.name: one
    for one in (
        ToolFormat("hermes", "json", ("<tool_call>",), ends=("</tool_call>",)),
        ToolFormat("qwen3_coder", "xml", ("<tool_call>", "<function="), ends=("</tool_call>",)),
        ToolFormat("llama3_json", "json", ("<|python_tag|>",), bare="{", ends=(";",)),
        ToolFormat("mistral", "mistral", ("[TOOL_CALLS]",), inner=("[ARGS]", "[CALL_ID]"), id_length=9, id_prefix=""),
    )
}

AUTO, NONE = "auto", "none"

OF_TOOLS = (
    ("mistral", r"\[TOOL_CALLS\]"),
    ("qwen3_coder", r"<function="),
    (NONE, r"<arg_key>"),  # GLM's own syntax within Hermes' markers
    ("hermes", r"<tool_call>"),
    ("llama3_json", r'<\|python_tag\|>|"parameters": dictionary of argument name'),
)
"""Tool formats with a pattern of their chat templates; the first match counts."""

OF_THINKING = (("think", r"</?think>"), ("mistral", r"\[THINK\]"))


def formats_of(template: str | None, *, tools: str = AUTO, thinking: str = AUTO) -> Formats:
    """Returns the formats of a chat template. tools, thinking: name of a format, `none`, or `auto`: detect."""
    thinks, calls = _named(template, thinking, OF_THINKING), _named(template, tools, OF_TOOLS)
    return Formats(THINKING.get(thinks), TOOLS.get(calls))


def _named(template: str | None, asked: str, told: tuple[tuple[str, str], ...]) -> str:
    if asked != AUTO or not template:
        return asked
    return next((name for name, pattern in told if re.search(pattern, template)), NONE)


@dataclass(frozen=True, slots=True)
class Content:
    """Text for the user."""

    text: str


@dataclass(frozen=True, slots=True)
class Thinking:
    """Reasoning text, before the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call; `arguments` is the text of a JSON object."""

    name: str
    arguments: str


ParsedPart: TypeAlias = Content | Thinking | Call


def joined(parts: Iterable[ParsedPart]) -> list[ParsedPart]:
    """Merges adjacent parts of the same kind, except calls."""
    found = list[ParsedPart]()
    for kind, run in groupby(parts, type):
        alike = list(run)
        if kind is not Call:
            alike = [kind("".join(part.text for part in alike if not isinstance(part, Call)))]
        found += alike
    return found
