"""Formats of thinking and tool calls by family of models, told from chat templates; the parts of such a text.

Sources: the chat templates of Qwen2.5, Qwen3, Qwen3-Coder, Hermes 2 Pro, Llama 3.1 to 3.3, Mistral (v3 to v13),
Magistral and DeepSeek-R1. Names of formats are those of vLLM's parsers where it has one of that kind.
"""

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

Body = Literal["json", "xml", "mistral"]


@dataclass(frozen=True, slots=True)
class ThinkingFormat:
    """Text between two markers, at the beginning of a text or after another marker."""

    name: str
    opens: str
    closes: str


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """Calls that begin with a marker."""

    name: str
    body: Body
    opens: tuple[str, ...]
    bare: str = ""  # opens a call where a text begins or a call ended; it is a part of the call
    ends: tuple[str, ...] = ()  # markers that may follow a call
    inner: tuple[str, ...] = ()  # markers inside of calls
    id_length: int = 24  # characters of a call's id; templates of some families check them
    id_prefix: str = "call_"

    @property
    def markers(self) -> tuple[str, ...]:
        """All markers, some of which may be special tokens."""
        return (*self.opens, *self.ends, *self.inner)


@dataclass(frozen=True, slots=True)
class Formats:
    """Formats of one model; None: it does no such thing, or its format is unknown."""

    thinking: ThinkingFormat | None = None
    tools: ToolFormat | None = None

    @property
    def markers(self) -> tuple[str, ...]:
        thinking = (self.thinking.opens, self.thinking.closes) if self.thinking is not None else ()
        return (*thinking, *(self.tools.markers if self.tools is not None else ()))


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
    (NONE, r"<arg_key>"),  # GLM's own, in Hermes' markers
    ("hermes", r"<tool_call>"),
    ("llama3_json", r'<\|python_tag\|>|"parameters": dictionary of argument name'),
)
"""Formats with what only their templates say; the first that is found counts."""

OF_THINKING = (("think", r"</?think>"), ("mistral", r"\[THINK\]"))


def formats_of(template: str | None, *, tools: str = AUTO, thinking: str = AUTO) -> Formats:
    """Returns the formats of a model with this chat template; the names are `auto`, `none` or those of formats."""
    thinks, calls = _named(template, thinking, OF_THINKING), _named(template, tools, OF_TOOLS)
    return Formats(THINKING.get(thinks), TOOLS.get(calls))


def _named(template: str | None, asked: str, told: tuple[tuple[str, str], ...]) -> str:
    if asked != AUTO or not template:
        return asked
    return next((name for name, pattern in told if re.search(pattern, template)), NONE)


def mentions(template: str | None, name: str) -> bool:
    """Returns whether a template mentions a variable."""
    return bool(template) and re.search(rf"\b{re.escape(name)}\b", template or "") is not None


@dataclass(frozen=True, slots=True)
class Content:
    """Text for the user."""

    text: str

    @property
    def raw(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Thinking:
    """Text that the model writes for itself before it answers."""

    text: str

    @property
    def raw(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Call:
    """A tool that is called; `arguments` is a JSON object as text."""

    name: str
    arguments: str
    raw: str = ""  # what was written; empty for all but the first of several calls that came as one list


@dataclass(frozen=True, slots=True)
class Dropped:
    """A marker, and the blanks beside it: no part of what is said."""

    raw: str


Part: TypeAlias = Content | Thinking | Call | Dropped


def joined(parts: list[Part]) -> list[Part]:
    """Returns the parts with neighbours of one kind as one; calls stay as they are."""
    found = list[Part]()
    for part in parts:
        match found[-1] if found else None, part:
            case Content(before), Content(text):
                found[-1] = Content(before + text)
            case Thinking(before), Thinking(text):
                found[-1] = Thinking(before + text)
            case Dropped(before), Dropped(raw):
                found[-1] = Dropped(before + raw)
            case _:
                found.append(part)
    return found
