"""Bodies of Anthropic's API: blocks, messages, tools and parameters, and the chat that they stand for.

A message's blocks become one message of the chat, and each tool's result another.
"""

import json
from collections.abc import Iterator
from functools import cached_property
from itertools import groupby
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from draft_node.http.schema.chat import (
    MAX_ID_CHARS,
    MAX_MESSAGES,
    MAX_PARTS,
    MAX_TOOLS,
    Asking,
    ChatRequest,
    Effort,
    Name,
    NumTokens,
    PastName,
    Schema,
    Stop,
    Turns,
    listed,
)
from draft_node.http.schema.content_parts import TextPart, Unseen, content_of, text_of
from draft_node.http.schema.errors import Names
from draft_node.http.schema.strict import IGNORED, ByType, LeftOut, Strict, refused
from draft_node.parsing.tool_parsers import MAX_DEPTH, depth
from draft_node.service.chat_support import ChatSupport
from goodspeed.serving.web.errors import NO_THREADS

IGNORED_HERE = IGNORED | {
    *("context_management", "compaction", "task_budget", "speed", "inference_geo"),  # what a hosted model is to do
    *("fallbacks", "fallback_credit_token", "billing_policy", "user_profile_id", "diagnostics"),  # and on what terms
    *("eager_input_streaming", "defer_loading", "input_examples", "allowed_callers"),  # how tools are shown and called
    *("caller", "toolset_name", "clear_at", "encrypted_content", "signature", "tool_changes"),  # of blocks
    *("betas", "anthropic_beta", "anthropic_version"),  # headers that some clients send in the body
    *("display", "block_binding", "citations"),  # of thinking and documents
}
"""Members that Anthropic's clients send, and that change no text here."""


class OfMessages(Strict):
    """A part of a body of Anthropic's API."""

    ignores = IGNORED_HERE


class CustomTool(OfMessages):
    type: Literal["custom"] | None = None
    name: Name
    description: str | None = None
    input_schema: Schema
    strict: bool | None = None  # true: a call's input keeps the schema

    def shown(self) -> dict[str, Any]:
        """Returns the tool of a chat."""
        shown = {"name": self.name, "description": self.description, "strict": self.strict}
        return {"type": "function", "function": {**shown, "parameters": self.input_schema}}


class HostedTool(LeftOut):
    """A tool that Anthropic's service runs. Those that a client runs by a schema of Anthropic's are not supported."""

    types = (
        r"(?!(bash|text_editor|memory|computer|browser)_)[a-z0-9_]{1,40}_\d{8}|tool_search_tool_[a-z0-9]+|mcp_toolset"
    )


AnyTool: TypeAlias = Annotated[CustomTool | HostedTool, ByType("custom")]


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
    signature: str | None = None  # taken, and not looked at


class Compaction(OfMessages):
    """The summary of what was said before."""

    type: Literal["compaction"]
    content: str | None = None

    @property
    def text(self) -> str:
        return self.content or ""


class ToolReference(LeftOut):
    """A tool that a search found. The model sees all tools from the beginning."""

    types = "tool_reference"

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


class HostedBlock(LeftOut):
    """A block that only Anthropic's service runs or reads, or that says when a tool comes or goes.

    The model sees all tools from the beginning.
    """

    types = (
        r"(server|mcp)_tool_use|[a-z_]+_tool_result|redacted_thinking|mcp_tool_listing|fallback|tool_(addition|removal)"
    )


def _unless_unread(given: Any, found: str) -> str:
    """Returns the type of a block: of a document that is neither text nor blocks that of a file."""
    if found != "document" or not isinstance(given, dict):
        return found
    source = given.get("source")
    is_written = isinstance(source, dict) and source.get("type") in ("text", "content")
    return found if is_written else "container_upload"


OF_BLOCKS = ByType(find=_unless_unread)

Shown: TypeAlias = Annotated[InputText | Unseen | Document | SearchResult | ToolReference, OF_BLOCKS]
"""A block of a tool's result."""

Block: TypeAlias = Annotated[
    InputText | ToolUse | ToolResult | Thought | Unseen | Document | SearchResult | Compaction | HostedBlock,
    OF_BLOCKS,
]
"""A block of a message."""

WrittenSource.model_rebuild()
ToolResult.model_rebuild()

ROLES: dict[str, tuple[type, ...]] = {
    "user": (InputText, ToolResult, Unseen, Document, SearchResult),
    "assistant": (InputText, ToolUse, Thought, Compaction, HostedBlock),
    "system": (InputText, HostedBlock),
}
"""The blocks that messages of a role may have."""

ASKED = (InputText, Unseen, Document, SearchResult)
"""The blocks of a user or the system that the model sees, beside tools' results."""


class Message(OfMessages):
    ignores = OfMessages.ignores | {"output_config"}  # the effort from a system message on

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

    def add_to(self, turns: Turns, place: str) -> None:
        """Adds what the model sees of it to the messages of a chat."""
        if self.role == "assistant":
            thoughts = [block.thinking for block in self.blocks if isinstance(block, Thought) and block.thinking]
            said = text_of(block for block in self.blocks if isinstance(block, InputText | Compaction))
            turns.add(place, "assistant", content=said, reasoning_content="\n".join(thoughts))
            for i, block in enumerate(self.blocks):
                if isinstance(block, ToolUse):
                    turns.add_call(f"{place}.content.{i}", block.id, block.name, block.input)
            return
        for _, run in groupby(enumerate(self.blocks), lambda one: isinstance(one[1], ToolResult)):
            blocks = dict(run)
            if shown := [block for block in blocks.values() if isinstance(block, ASKED)]:
                turns.add(place, self.role, content=content_of(shown))
            for i, block in blocks.items():
                if isinstance(block, ToolResult):
                    content = text_of(block.content)
                    turns.add(f"{place}.content.{i}", "tool", tool_call_id=block.tool_use_id, content=content)


class ToolChoice(OfMessages):
    type: Literal["auto", "any", "tool", "none"]
    name: Name | None = None  # of the tool to call, with the type tool
    disable_parallel_tool_use: bool | None = None  # true: the answer ends after one call

    @model_validator(mode="after")
    def _names_one(self) -> Self:
        if (self.name is not None) is not (self.type == "tool"):
            raise refused("name", 'must be given with the type "tool", and only then')
        return self


class Thinking(OfMessages):
    type: Literal["enabled", "adaptive", "between_tools", "disabled"]


class OutputFormat(OfMessages):
    type: Literal["json_schema"]
    schema_: Schema = Field(alias="schema")


class OutputConfig(OfMessages):
    effort: Effort | None = None
    format: OutputFormat | None = None


CHOICES: dict[str, Any] = {"auto": "auto", "any": "required", "none": "none"}
"""Choices of a tool by no name, and those of a chat."""

NAMES: Names = (
    (
        r"This model's maximum context length is (\d+) tokens, but the messages have (\d+) tokens( at least)?.*",
        lambda found: f"prompt is too long: {found[2]} tokens > {found[1]} maximum{' (or more)' * bool(found[3])}",
    ),
    (r"\bmax_completion_tokens\b", "max_tokens"),
    (r"\benable_thinking\b", "thinking"),
    (r"\breasoning_effort\b", "output_config.effort"),
    (r"\bresponse_format(\.json_schema)?", "output_config.format"),
    (r"(?<=\d\.)parameters\b", "input_schema"),
    (r"(?<=\d\.)arguments\b", "input"),
)
"""Patterns of a chat request's parameter names, and the names in messages."""


class CountRequest(OfMessages):
    """The parameters that a prompt is made of."""

    announcing = "anthropic-beta"
    model: str | None = None
    messages: Annotated[list[Message], listed(MAX_MESSAGES, 1)]
    system: Texts | None = None
    tools: Annotated[list[AnyTool], listed(MAX_TOOLS)] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None  # left out: disabled where the model can do without
    output_config: OutputConfig | None = None

    @model_validator(mode="after")
    def _has_tools_of_its_own(self) -> Self:
        """Refuses a request for tools that are all left out: the model would answer as if it had used them."""
        if self.tools and not any(isinstance(tool, CustomTool) for tool in self.tools):
            what = f"must have one of your own: nothing runs {self.tools[0].type} here; send one, or leave tools out"
            raise refused("tools", what)
        return self

    @cached_property
    def turns(self) -> Turns:
        """The messages of the chat."""
        turns = Turns(f"tools.{i}" for i, tool in enumerate(self.tools or ()) if isinstance(tool, CustomTool))
        if self.system:
            turns.add("system", "system", content=text_of(self.system))
        for i, message in enumerate(self.messages):
            message.add_to(turns, f"messages.{i}")
        return turns

    @property
    def names(self) -> Names:
        """Patterns of a chat request's parameter names, and the names in messages."""
        return (*self.turns.names(), *NAMES)

    @property
    def own_tools(self) -> list[CustomTool]:
        """The tools that the model sees: all from the beginning."""
        return [tool for tool in self.tools or () if isinstance(tool, CustomTool)]

    def chat(self, chats: ChatSupport) -> ChatRequest:
        """Returns the chat request for the same text; ApiError if chats refuse it."""
        choice, config = self.tool_choice or ToolChoice(type="auto"), self.output_config or OutputConfig()
        form = config.format
        asked: dict[str, Any] = {
            "messages": self.turns.messages,
            "tools": [tool.shown() for tool in self.own_tools],
            "tool_choice": CHOICES.get(choice.type) or {"type": "function", "function": {"name": choice.name}},
            "parallel_tool_calls": not choice.disable_parallel_tool_use,
            "enable_thinking": self._thinks(chats),
            "reasoning_effort": config.effort if self._shows_effort(chats) else None,
            "response_format": form
            and {"type": "json_schema", "json_schema": {"name": "answer", "schema": form.schema_}},
        }
        if isinstance(self, MessagesRequest):
            asked |= {"max_completion_tokens": self.max_tokens, "stop": self.stop_sequences}
        return ChatRequest.standing_for(self, asked, self.names)

    def ignored(self, chats: ChatSupport) -> Iterator[str]:
        """Yields the members that the chat template knows nothing of."""
        if self.thinking is not None and not self._switches(chats):
            yield "thinking"
        if not self._shows_effort(chats):
            yield "effort"

    def _switches(self, chats: ChatSupport) -> bool:
        return bool(chats.switches(tools=bool(self.own_tools)))

    def _shows_effort(self, chats: ChatSupport) -> bool:
        """True if the effort, if any, can be shown to the model: else it is ignored."""
        effort = self.output_config.effort if self.output_config is not None else None
        is_known = effort in (None, "none") or chats.knows("reasoning_effort", tools=bool(self.own_tools))
        return is_known or self._switches(chats)

    def _thinks(self, chats: ChatSupport) -> bool | None:
        """Returns whether to think; without `thinking` and effort: not if the chat template can switch it off."""
        if self.thinking is not None:
            return self.thinking.type != "disabled"
        has_effort = self.output_config is not None and self.output_config.effort is not None
        return False if self._switches(chats) and not has_effort else None


class MessagesRequest(CountRequest, Asking):
    max_tokens: NumTokens
    stop_sequences: Annotated[list[Stop], listed(4)] | None = None
    thread: Any = None  # refused: no conversation is kept here

    @model_validator(mode="after")
    def _keeps_nothing(self) -> Self:
        if self.thread:
            raise refused("thread", "is not supported: no conversation is stored; send the whole one", NO_THREADS)
        return self
