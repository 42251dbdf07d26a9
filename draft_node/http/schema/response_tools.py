"""Schemas of a response's tools, and their translation to a chat's functions under names that map back.

The model sees functions only. A custom tool is one with the string `input`, and a function of a namespace has the
namespace's name before its own. Tools that only a hosted service can run are left out.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import Field, ValidationInfo, model_validator

from draft_node.http.schema.chat import MAX_NAME_CHARS, MAX_TOOLS, Function, Name, PlainFormat, Schema, listed
from draft_node.http.schema.errors import wrong
from draft_node.http.schema.strict import ByType, LeftOut, Strict, refused, tell_ignored
from goodspeed.wire.fields import MAX_CONSTRAINT_CHARS

SEARCH = "tool_search"
"""Type of the tool that finds further tools, and the name of its function."""

DATED = r"(_\d{4}_\d\d_\d\d)?"
"""Pattern of the version at the end of a hosted type."""


class FunctionTool(Function):
    type: Literal["function"]


class GrammarFormat(Strict):
    """Shown to the model, and not enforced."""

    type: Literal["grammar"]
    syntax: Literal["lark", "regex"]
    definition: Annotated[str, Field(max_length=MAX_CONSTRAINT_CHARS)]

    @model_validator(mode="after")
    def _is_only_shown(self, info: ValidationInfo) -> Self:
        tell_ignored("format", info)
        return self


class CustomTool(Strict):
    """A tool that takes a text."""

    type: Literal["custom"]
    name: Name
    description: str | None = None
    format: Annotated[PlainFormat | GrammarFormat, ByType("text")] | None = None


class NamespaceTool(Strict):
    """Tools of one's own under a common name."""

    type: Literal["namespace"]
    name: Name
    description: str | None = None
    tools: Annotated[list[Annotated[FunctionTool | CustomTool, ByType("function")]], listed(MAX_TOOLS)]

    @model_validator(mode="after")
    def _has_short_names(self) -> Self:
        longest = max((shown_name(tool.name, self.name) for tool in self.tools), key=len, default="")
        if len(longest) > MAX_NAME_CHARS:
            what = (
                f"has {longest} of {len(longest)} characters; at most {MAX_NAME_CHARS} can be shown, so shorten a name"
            )
            raise refused("tools", what)
        return self


class SearchTool(Strict):
    """Finds further tools; served if the client runs it."""

    type: Literal["tool_search"]
    execution: Literal["server", "client"] | None = None
    description: str | None = None
    parameters: Schema | None = None

    @model_validator(mode="after")
    def _is_left_out(self, info: ValidationInfo) -> Self:
        if self.execution != "client":
            tell_ignored(SEARCH, info)
        return self


class HostedTool(LeftOut):
    """A tool that only a hosted service can run."""

    types = (
        "(web_search|web_search_preview|file_search|code_interpreter|image_generation|mcp|local_shell|computer"
        f"|computer_use|computer_use_preview|programmatic_tool_calling){DATED}"
    )


AnyTool: TypeAlias = Annotated[FunctionTool | CustomTool | NamespaceTool | SearchTool | HostedTool, ByType()]

Tools: TypeAlias = Annotated[list[AnyTool], listed(MAX_TOOLS)]


class NamedTool(Strict):
    """The tool that the model must call, or one that it may call."""

    type: Literal["function", "custom"]
    name: Name
    namespace: Name | None = None


class WholeNamespace(Strict):
    type: Literal["namespace"]
    name: Name


class NamedSearch(Strict):
    type: Literal["tool_search"]


class AllowedTools(Strict):
    """Some of the tools, to which calls are restricted."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Annotated[
        list[Annotated[NamedTool | WholeNamespace | NamedSearch | HostedTool, ByType("function")]], listed(MAX_TOOLS)
    ]


ToolChoice: TypeAlias = Annotated[
    Literal["auto", "none", "required"] | NamedTool | AllowedTools | HostedTool, ByType("auto")
]


def shown_name(name: str, namespace: str | None) -> str:
    """Returns the name under which the model sees a tool."""
    return name if not namespace else f"{namespace.rstrip('_')}__{name}"


@dataclass(frozen=True, slots=True)
class Served:
    """A tool that the model sees as a function."""

    function: dict[str, Any]
    place: str  # dotted name in the request
    name: str
    namespace: str | None = None
    kind: Literal["function", "custom", "tool_search"] = "function"


class Toolbox:
    """The tools of one request: of its `tools`, and of items of its input."""

    def __init__(self, tools: Sequence[AnyTool], found: Iterable[tuple[str, Sequence[AnyTool]]] = ()) -> None:
        """found: tools of input items, by dotted name; each replaces an earlier tool of the same name."""
        self.served = list(_served(tools, "tools"))
        self._has_hosted = any(isinstance(tool, HostedTool) for tool in tools)
        positions = {one.function["name"]: i for i, one in enumerate(self.served)}
        for place, later in found:
            for one in _served(later, place):
                i = positions.setdefault(one.function["name"], len(self.served))
                self.served[i : i + 1] = [one]

    def functions(self) -> list[dict[str, Any]]:
        return [{"type": "function", "function": one.function} for one in self.served]

    def called(self, shown: str) -> Served:
        """Returns the tool of this shown name; a plain function if the model made the name up."""
        return next((one for one in self.served if one.function["name"] == shown), Served({}, "", shown))

    def choice(self, asked: ToolChoice | None) -> Any:
        """Returns the `tool_choice` of the chat."""
        match asked:
            case NamedTool():
                return _named(shown_name(asked.name, asked.namespace))
            case AllowedTools():
                return self._allowed(asked)
            case HostedTool():
                if not self._has_hosted:
                    raise wrong(f"tool_choice names a {asked.type!r}, but no tool is one; send one, or omit this")
                return "none"
        return asked

    def _allowed(self, asked: AllowedTools) -> Any:
        names = list[str]()
        for one in asked.tools:
            if isinstance(one, WholeNamespace):
                found = [each.function["name"] for each in self.served if each.namespace == one.name]
                names += found or [shown_name("", one.name)]  # the chat refuses a name that no tool has
            elif isinstance(one, NamedSearch):
                names += [SEARCH for each in self.served if each.kind == "tool_search"]
            elif isinstance(one, NamedTool):
                names.append(shown_name(one.name, one.namespace))
        if not names and asked.mode == "auto":
            return "none"
        return {"type": "allowed_tools", "allowed_tools": {"mode": asked.mode, "tools": [*map(_named, names)]}}


def _named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def _served(tools: Iterable[AnyTool], place: str, within: NamespaceTool | None = None) -> Iterator[Served]:
    namespace = within.name if within is not None else None
    for i, tool in enumerate(tools):
        where, about = f"{place}.{i}", _about(within) if i == 0 else ""
        match tool:
            case FunctionTool() | CustomTool():
                yield Served(_function(tool, namespace, about), where, tool.name, namespace, tool.type)
            case NamespaceTool():
                yield from _served(tool.tools, f"{where}.tools", tool)
            case SearchTool(execution="client"):
                function = {"name": SEARCH, "description": tool.description, "parameters": tool.parameters}
                yield Served(function, where, SEARCH, None, "tool_search")


def _about(namespace: NamespaceTool | None) -> str:
    """Returns the description of a namespace, which its first tool shows."""
    if namespace is None or not namespace.description:
        return ""
    return f"All tools named {shown_name('...', namespace.name)}: {namespace.description}"


INPUT: Schema = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}
"""Parameters of a custom tool as a function."""


def _function(tool: FunctionTool | CustomTool, namespace: str | None, about: str) -> dict[str, Any]:
    form = tool.format if isinstance(tool, CustomTool) else None
    kept = f"The input has this {form.syntax} grammar:\n{form.definition}" if isinstance(form, GrammarFormat) else ""
    shown = {"name": shown_name(tool.name, namespace), "description": _joined(tool.description, kept, about)}
    if isinstance(tool, CustomTool):
        return {**shown, "parameters": INPUT}
    return {**shown, "parameters": tool.parameters, "strict": tool.strict}


def _joined(*texts: str | None) -> str | None:
    return "\n\n".join(filter(None, texts)) or None


def as_input(arguments: str) -> str:
    """Returns the input of a custom tool's call; of other arguments that a model made up, the only text, or all."""
    given = json.loads(arguments)
    texts = [one for one in given.values() if isinstance(one, str)]
    if isinstance(given.get("input"), str):
        return str(given["input"])
    return texts[0] if len(texts) == len(given) == 1 else arguments
