"""Schemas of the blocks in messages: what the model sees of each, and which roles may have them."""

import json
import re
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import Discriminator, Field, Tag, model_validator

from draft_node.http.messages.tools import CustomTool, OfMessages
from draft_node.http.parts import TextPart, Unseen, text_of
from draft_node.http.requests import MAX_ID_CHARS, MAX_PARTS, PastName, listed
from draft_node.http.strict import LeftOut, refused
from draft_node.parsing.bodies import MAX_DEPTH
from draft_node.service.chat_forms import depth


class InputText(OfMessages, TextPart):
    """A text; its citations are not looked at."""


Texts: TypeAlias = str | Annotated[list[InputText], listed(MAX_PARTS)]
Id: TypeAlias = Annotated[str, Field(min_length=1, max_length=MAX_ID_CHARS)]


class ToolUse(OfMessages):
    type: Literal["tool_use"]
    id: Id
    name: PastName
    input: dict[str, Any]

    @model_validator(mode="after")
    def _is_a_calls(self) -> Self:
        if depth(self.input) > MAX_DEPTH:
            raise refused("input", f"must not have more than {MAX_DEPTH} levels")
        try:
            json.dumps(self.input, allow_nan=False)
        except ValueError:
            raise refused("input", "must not have NaN or Infinity, which are not JSON") from None
        return self


class Thought(OfMessages):
    type: Literal["thinking"]
    thinking: str
    signature: str | None = Field(default=None, description="taken, and not looked at")


class Compaction(OfMessages):
    """The summary of what was said before."""

    type: Literal["compaction"]
    content: str | None = None

    @property
    def text(self) -> str:
        return self.content or ""


class ToolDefinition(OfMessages):
    type: Literal["tool_definition"]
    definition: CustomTool


def _kind_of_change(given: Any) -> str:
    kind = given.get("type") if isinstance(given, dict) else getattr(given, "type", None)
    return "[tool_definition]" if kind == "tool_definition" else "[tool_reference]"


class ToolChange(LeftOut):
    """Adds a tool, or removes one. The model sees all tools from the beginning."""

    tool: Annotated[
        Annotated[ToolDefinition, Tag("[tool_definition]")] | Annotated[LeftOut, Tag("[tool_reference]")],
        Discriminator(_kind_of_change),
    ]

    @property
    def definition(self) -> CustomTool | None:
        return self.tool.definition if isinstance(self.tool, ToolDefinition) else None


class ToolReference(LeftOut):
    """A tool that a search found. The model sees all tools from the beginning."""

    tool_name: PastName

    @property
    def text(self) -> str:
        return f"[the tool {self.tool_name}]"


class SearchResult(OfMessages):
    type: Literal["search_result"]
    source: str
    title: str
    content: Annotated[list[InputText], listed(MAX_PARTS)]

    @property
    def text(self) -> str:
        return "\n".join((self.title, self.source, text_of(self.content)))


class WrittenSource(OfMessages):
    """A document's text, or its blocks."""

    type: Literal["text", "content"]
    media_type: Literal["text/plain"] | None = None
    data: str = ""
    content: "str | Annotated[list[Shown], listed(MAX_PARTS)]" = ""


class Document(OfMessages):
    """A document that is text, or blocks; others the model cannot read."""

    type: Literal["document"]
    source: WrittenSource
    title: str | None = None
    context: str | None = None

    @property
    def text(self) -> str:
        given = (self.title, self.context, self.source.data, text_of(self.source.content))
        return "\n".join(part for part in given if part)


class ToolResult(OfMessages):
    type: Literal["tool_result"]
    tool_use_id: Id
    content: "str | Annotated[list[Shown], listed(MAX_PARTS)] | None" = None


OTHERS = re.compile(r"(server|mcp)_tool_use|[a-z_]+_tool_result|redacted_thinking|mcp_tool_listing|fallback")
"""Types of what only Anthropic's service runs or reads, in answers of its models."""

UNREAD = "redacted_thinking"
"""Name of their branch."""


def _kind(given: Any) -> str:
    """Returns the branch of a block; the last types of a branch are those of a file."""
    found = given.get("type") or "" if isinstance(given, dict) else getattr(given, "type", "")
    if isinstance(found, str) and OTHERS.fullmatch(found):
        return f"[{UNREAD}]"
    if found == "document" and isinstance(given, dict):
        source = given.get("source")
        is_written = isinstance(source, dict) and source.get("type") in ("text", "content")
        return "[document]" if is_written else "[container_upload]"
    return f"[{found}]"


Shown: TypeAlias = Annotated[
    Annotated[InputText, Tag("[text]")]
    | Annotated[Unseen, Tag("[image]")]
    | Annotated[Document, Tag("[document]")]
    | Annotated[Unseen, Tag("[container_upload]")]
    | Annotated[SearchResult, Tag("[search_result]")]
    | Annotated[ToolReference, Tag("[tool_reference]")],
    Discriminator(_kind),
]
"""A block of a tool's result."""

Block: TypeAlias = Annotated[
    Annotated[InputText, Tag("[text]")]
    | Annotated[ToolUse, Tag("[tool_use]")]
    | Annotated[ToolResult, Tag("[tool_result]")]
    | Annotated[Thought, Tag("[thinking]")]
    | Annotated[Unseen, Tag("[image]")]
    | Annotated[Document, Tag("[document]")]
    | Annotated[Unseen, Tag("[container_upload]")]
    | Annotated[SearchResult, Tag("[search_result]")]
    | Annotated[Compaction, Tag("[compaction]")]
    | Annotated[ToolChange, Tag("[tool_addition]")]
    | Annotated[ToolChange, Tag("[tool_removal]")]
    | Annotated[LeftOut, Tag(f"[{UNREAD}]")],
    Discriminator(_kind),
]
"""A block of a message."""

WrittenSource.model_rebuild()
ToolResult.model_rebuild()

ROLES: dict[str, tuple[type, ...]] = {
    "user": (InputText, ToolResult, Unseen, Document, SearchResult),
    "assistant": (InputText, ToolUse, Thought, Compaction, LeftOut),
    "system": (InputText, ToolChange),
}
"""The blocks that messages of a role may have."""


class Message(OfMessages):
    ignores = OfMessages.ignores | {"output_config"}  # the effort from a message of the system on

    role: Literal["user", "assistant", "system"]
    content: str | Annotated[list[Block], listed(MAX_PARTS)]

    @property
    def blocks(self) -> "list[Block]":
        return [InputText(type="text", text=self.content)] if isinstance(self.content, str) else self.content

    @model_validator(mode="after")
    def _is_of_its_role(self) -> Self:
        if not self.blocks and self.role != "assistant":  # a model may have said nothing
            raise refused("content", "must not be empty")
        for block in self.blocks:
            if type(block) not in ROLES[self.role]:
                raise refused("content", f'must not have blocks of the type "{block.type}" in the role "{self.role}"')
        return self
