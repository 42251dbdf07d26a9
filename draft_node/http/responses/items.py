"""Schemas of a response's input items, and their translation to messages of a chat.

Output items of an earlier response may be sent back unchanged: adjacent reasoning, text and calls of the assistant
become one message.
"""

import json
from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import Field, Tag, model_validator

from draft_node.http.parts import Unseen, content_of, kind_of, text_of
from draft_node.http.requests import MAX_PARTS, MAX_PAST_NAME_CHARS, listed
from draft_node.http.responses.tools import SEARCH, AnyTool, Toolbox, Tools, as_arguments, shown_name
from draft_node.http.strict import LeftOut, Strict, refused

Mark: TypeAlias = Annotated[str, Field(max_length=512)] | None

TEXTS = dict.fromkeys(("output_text", "text", "summary_text", "reasoning_text"), "input_text")


class Part(Strict):
    type: Literal["input_text", "output_text", "text", "summary_text", "reasoning_text"]
    text: str
    annotations: list[Any] | None = Field(default=None, description="of an earlier response; taken, and not looked at")
    logprobs: list[Any] | None = Field(default=None, description="likewise")


class RefusalPart(Strict):
    type: Literal["refusal"]
    refusal: str

    @property
    def text(self) -> str:
        return self.refusal


Parts: TypeAlias = Annotated[
    list[
        Annotated[
            Annotated[Part, Tag("[input_text]")]
            | Annotated[RefusalPart, Tag("[refusal]")]
            | Annotated[Unseen, Tag("[input_image]")],
            kind_of("input_text", TEXTS | {"input_file": "input_image"}),
        ]
    ],
    listed(MAX_PARTS),
]


class Item(Strict):
    """Members of every item."""

    id: Mark = None
    status: Mark = None


class InputMessage(Item):
    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: str | Parts
    phase: Mark = None


class InputReasoning(Item):
    type: Literal["reasoning"]
    summary: Parts | None = None
    content: str | Parts | None = None

    @property
    def text(self) -> str:
        return text_of(self.content) or text_of(self.summary)


class Called(Item):
    """A call of a tool."""

    @model_validator(mode="after")
    def _has_a_short_name(self) -> Self:
        if len(shown := self.call[1]) > MAX_PAST_NAME_CHARS:
            what = f"has {len(shown)} characters with its namespace's; at most {MAX_PAST_NAME_CHARS} can be shown"
            raise refused("name", f"{what}, so shorten one")
        return self

    @property
    @abstractmethod
    def call(self) -> tuple[str | None, str, str]:
        """The call's id, None if no output can refer to it; the name that the model knows; the arguments."""


class FunctionCall(Called):
    type: Literal["function_call"]
    call_id: str
    name: str
    namespace: Mark = None
    arguments: str

    @property
    def call(self) -> tuple[str | None, str, str]:
        return self.call_id, shown_name(self.name, self.namespace), self.arguments


class CustomCall(Called):
    type: Literal["custom_tool_call"]
    call_id: str
    name: str
    namespace: Mark = None
    input: str

    @property
    def call(self) -> tuple[str | None, str, str]:
        return self.call_id, shown_name(self.name, self.namespace), as_arguments(self.input)


class ShellCall(Called):
    type: Literal["local_shell_call"]
    call_id: Mark = None
    action: dict[str, Any]

    @property
    def call(self) -> tuple[str | None, str, str]:
        return self.call_id or self.id, "local_shell", json.dumps(self.action)


class SearchCall(Called):
    type: Literal["tool_search_call"]
    call_id: Mark = None
    execution: Mark = None
    arguments: dict[str, Any] | str | None = None

    @property
    def call(self) -> tuple[str | None, str, str]:
        given = self.arguments
        return self.call_id, SEARCH, given if isinstance(given, str) else json.dumps(given or {})


class Output(Item):
    """The result of a call."""

    @property
    @abstractmethod
    def result(self) -> tuple[str | None, str]:
        """The call's id, None if it refers to none; the result as text."""


class CallOutput(Output):
    type: Literal["function_call_output", "custom_tool_call_output"]
    call_id: str
    name: Mark = None
    namespace: Mark = None
    output: str | Parts

    @property
    def result(self) -> tuple[str | None, str]:
        return self.call_id, text_of(self.output)


class ShellOutput(Output):
    type: Literal["local_shell_call_output"]
    call_id: Mark = None
    output: str

    @property
    def result(self) -> tuple[str | None, str]:
        return self.call_id or self.id, self.output


class FoundTools(Output):
    """Tools that a client found; the model may call them from then on."""

    type: Literal["tool_search_output"]
    call_id: Mark = None
    execution: Mark = None
    tools: Tools

    @property
    def result(self) -> tuple[str | None, str]:
        names = ", ".join(one.function["name"] for one in Toolbox(self.tools).served)
        return self.call_id, f"Found these tools: {names}" if names else "Found no tools."


class AdditionalTools(Item):
    type: Literal["additional_tools"]
    role: Mark = None
    tools: Tools


class ItemReference(Item):
    type: Literal["item_reference"]

    @model_validator(mode="after")
    def _is_kept_nowhere(self) -> Self:
        raise refused("type", 'must not be "item_reference": no item is kept here; send the item itself')


UNREAD = "compaction"
"""Name of the branch for items that only a hosted service can read, or whose tools only it can run."""

HOSTED_ITEMS = dict.fromkeys(
    ("compaction", "compaction_summary", "web_search_call", "image_generation_call", "mcp_list_tools"), UNREAD
)

AnyItem: TypeAlias = Annotated[
    Annotated[InputMessage, Tag("[message]")]
    | Annotated[FunctionCall, Tag("[function_call]")]
    | Annotated[CallOutput, Tag("[function_call_output]")]
    | Annotated[InputReasoning, Tag("[reasoning]")]
    | Annotated[CustomCall, Tag("[custom_tool_call]")]
    | Annotated[CallOutput, Tag("[custom_tool_call_output]")]
    | Annotated[ShellCall, Tag("[local_shell_call]")]
    | Annotated[ShellOutput, Tag("[local_shell_call_output]")]
    | Annotated[SearchCall, Tag("[tool_search_call]")]
    | Annotated[FoundTools, Tag("[tool_search_output]")]
    | Annotated[AdditionalTools, Tag("[additional_tools]")]
    | Annotated[ItemReference, Tag("[item_reference]")]
    | Annotated[LeftOut, Tag(f"[{UNREAD}]")],
    kind_of("message", HOSTED_ITEMS),
]


def tools_of(items: str | Sequence[AnyItem]) -> list[tuple[str, Sequence[AnyTool]]]:
    """Returns the tools that items bring, by dotted name."""
    listed = enumerate(() if isinstance(items, str) else items)
    return [(f"input.{i}.tools", item.tools) for i, item in listed if isinstance(item, AdditionalTools | FoundTools)]


def messages_of(items: str | Sequence[AnyItem], instructions: str | None) -> list[dict[str, Any]]:
    """Converts input items to messages of a chat request."""
    messages: list[dict[str, Any]] = [] if instructions is None else [{"role": "system", "content": instructions}]
    if isinstance(items, str):
        return [*messages, {"role": "user", "content": items}]
    turn: dict[str, Any] = {}  # the assistant's message in progress, the latest in `messages`
    for item in items:
        if isinstance(item, Output | InputMessage) and getattr(item, "role", "") != "assistant":
            messages += _message(item)
            turn = {}
        elif grown := _grown(item):
            if not turn or not _continues(turn, item):
                turn = {"role": "assistant"}
                messages.append(turn)
            turn.update({name: turn.get(name, type(value)()) + value for name, value in grown.items()})
    return [{"content": "", **message} for message in messages]  # thinking that was cut has no text after it


def _message(item: Output | InputMessage) -> list[dict[str, Any]]:
    """Returns the message of a tool or a user; none for the output of a call that has no id."""
    if isinstance(item, InputMessage):
        return [{"role": item.role, "content": content_of(item.content)}]
    call_id, text = item.result
    return [] if call_id is None else [{"role": "tool", "tool_call_id": call_id, "content": text}]


def _continues(turn: dict[str, Any], item: AnyItem) -> bool:
    """True if an assistant's item may join the message so far: reasoning, then text, then calls."""
    return isinstance(item, Called) or (isinstance(item, InputMessage) and not turn.keys() & {"tool_calls", "content"})


def _grown(item: AnyItem) -> dict[str, Any]:
    """Returns what an assistant's item adds to its message; nothing for what the model cannot see."""
    match item:
        case InputReasoning() if item.text:
            return {"reasoning_content": item.text}
        case InputMessage():
            return {"content": text_of(item.content)}
        case Called():
            call_id, name, arguments = item.call
            function = {"name": name, "arguments": arguments}
            return (
                {} if call_id is None else {"tool_calls": [{"id": call_id, "type": "function", "function": function}]}
            )
    return {}
