"""The input of a response: items of a conversation, in the order in which they came, as messages of a chat.

What an earlier response had as output may be sent back as it was. Thinking, text and calls of the assistant that follow
each other are one message.
"""

from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, Field, WithJsonSchema

from draft_node.serve.api.request.errors import ApiError
from draft_node.serve.api.request.fields import NOT_NULL, Mark, Strict, one_of
from draft_node.serve.api.request.schemas import MAX_MESSAGES, MAX_PARTS

TEXTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text")
KINDS = ("message", "function_call", "function_call_output", "reasoning")
NEEDED = {
    "message": ("role", "content"),
    "function_call": ("call_id", "name", "arguments"),
    "function_call_output": ("call_id", "output"),
    "reasoning": (),
}
"""What each kind of item cannot do without."""

TAKEN = {
    "message": (*NEEDED["message"], "id", "status", "phase"),
    "function_call": (*NEEDED["function_call"], "id", "status"),
    "function_call_output": (*NEEDED["function_call_output"], "id", "status"),
    "reasoning": ("id", "status", "summary", "content"),
}
"""What each kind of item may have beside its type."""


class Part(Strict):
    type: Annotated[str, *one_of("text_part", *TEXTS), NOT_NULL]
    text: Annotated[str, NOT_NULL]
    annotations: list[Any] | None = Field(default=None, description="of an earlier response; taken, and not looked at")
    logprobs: list[Any] | None = Field(default=None, description="likewise")


def _parts(given: object) -> object:
    """A text stands for one part with it."""
    return [{"type": "text", "text": given}] if isinstance(given, str) else given


_PART = {"$ref": "#/components/schemas/Part"}
_TEXT_OR_PARTS = {
    "anyOf": [{"type": "string"}, {"type": "array", "items": _PART, "maxItems": MAX_PARTS}, {"type": "null"}]
}
Parts: TypeAlias = Annotated[list[Part], Field(fail_fast=True, max_length=MAX_PARTS)]
TextOrParts: TypeAlias = Annotated[Parts | None, BeforeValidator(_parts), WithJsonSchema(_TEXT_OR_PARTS)]


class Item(Strict):
    """A message, a call of a function, what came of one, or what was thought; each kind has fields of its own."""

    type: Annotated[str, *one_of("item", *KINDS)] | None = Field(default=None, description="default: message")
    id: Mark = None
    status: Mark = None
    role: Annotated[str, *one_of("item_role", "system", "developer", "user", "assistant")] | None = None
    content: TextOrParts = None
    phase: Mark = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: TextOrParts = None
    summary: Parts | None = None
    encrypted_content: None = None
    namespace: None = None
    caller: None = None


def _items(given: object) -> object:
    """A text stands for one message of the user with it."""
    return [{"role": "user", "content": given}] if isinstance(given, str) else given


_INPUT = {
    "anyOf": [
        {"type": "string"},
        {"type": "array", "items": {"$ref": "#/components/schemas/Item"}, "minItems": 1, "maxItems": MAX_MESSAGES},
    ]
}
Input: TypeAlias = Annotated[
    list[Item],
    Field(fail_fast=True, min_length=1, max_length=MAX_MESSAGES),
    BeforeValidator(_items),
    WithJsonSchema(_INPUT),
]


def messages_of(items: Sequence[Item], instructions: str | None) -> list[dict[str, Any]]:
    """The conversation as messages of a chat request; ApiError names what an item lacks."""
    messages: list[dict[str, Any]] = []
    if instructions is not None:
        messages.append({"role": "system", "content": instructions})
    turn: dict[str, Any] = {}  # of the assistant, as far as it goes
    for i, item in enumerate(items):
        _check(i, item)
        if item.type == "function_call_output" or (_is_message(item) and item.role != "assistant"):
            messages += [turn] if turn else []
            turn = {}
            messages.append(_told(item))
            continue
        if turn and not _continues(turn, item):
            messages.append(turn)
            turn = {}
        turn = _grown(turn, item)
    return [*messages, *([turn] if turn else [])]


def _is_message(item: Item) -> bool:
    return item.type in (None, "message")


def _check(i: int, item: Item) -> None:
    kind = item.type or "message"
    for name in NEEDED[kind]:
        if getattr(item, name) is None:
            what = f"input.{i}.{name} must be given: an item of the type {kind!r} has one"
            raise ApiError(400, what, param=f"input.{i}.{name}", code="missing_parameter")
    foreign(item, TAKEN[kind], f"input.{i}", f"an item of the type {kind!r}")


def foreign(given: Strict, taken: Sequence[str], where: str, what: str) -> None:
    """ApiError for a member that has a value and does not belong to what is given, which is a `what`."""
    for name in sorted(given.model_fields_set - {"type", *taken, *(given.model_extra or ())}):
        if getattr(given, name) is not None:
            own = f"{where}.{name.removesuffix('_')}"
            raise ApiError(400, f"{own} does not belong to {what}; leave it out", param=own)


def _told(item: Item) -> dict[str, Any]:
    """A message of anybody but the assistant."""
    if item.type == "function_call_output":
        return {"role": "tool", "tool_call_id": item.call_id, "content": _text(item.output)}
    return {"role": item.role, "content": _text(item.content)}


def _continues(turn: dict[str, Any], item: Item) -> bool:
    """Whether an item of the assistant may be of the turn so far: thinking, then text, then calls."""
    if item.type == "function_call":
        return True
    return "tool_calls" not in turn and "content" not in turn and (item.type != "reasoning" or not turn)


def _grown(turn: dict[str, Any], item: Item) -> dict[str, Any]:
    turn = turn or {"role": "assistant"}
    match item.type:
        case "reasoning":
            return turn | {"reasoning_content": _text(item.content) or _text(item.summary)}
        case "function_call":
            function = {"name": item.name, "arguments": item.arguments}
            calls = [*turn.get("tool_calls", []), {"id": item.call_id, "type": "function", "function": function}]
            return turn | {"tool_calls": calls}
    return turn | {"content": _text(item.content)}


def _text(parts: Sequence[Part] | None) -> str:
    return "".join(part.text for part in parts or ())
