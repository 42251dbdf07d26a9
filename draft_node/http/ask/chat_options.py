"""Reads what a chat gives its template, and how its answer is parsed: tools, reasoning, a turn to be continued."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic_core import from_json

from draft_node.http.schema.chat import (
    AllowedTools,
    ChatRequest,
    Effort,
    Function,
    NamedTool,
    Tool,
    ToolCall,
    ToolChoice,
)
from draft_node.http.schema.content_parts import text_of
from draft_node.http.schema.errors import ApiError, wrong
from draft_node.parsing.formats import ThinkingFormat
from draft_node.parsing.parser import Continued, ParserSettings
from draft_node.parsing.tool_parsers import MAX_DEPTH, depth
from draft_node.parsing.tool_schemas import is_of_object
from draft_node.service.chat_support import ChatSupport
from goodspeed.engine.tokenizing.text import Inputs


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """A chat's inputs for the template, and how to parse its answer."""

    inputs: Inputs
    parser: ParserSettings
    functions: tuple[Function, ...] = ()  # callable ones
    is_forced: bool = False  # a call is required
    is_restricted: bool = False  # the model sees tools that it must not call


def options_of(request: ChatRequest, chats: ChatSupport) -> ChatOptions:
    """Converts a request's tools and settings; ApiError if invalid, or not supported by this model's template."""
    choice = request.tool_choice
    functions = _functions(request.tools, choice, chats)
    called = _callable(functions, choice)
    schemas = {function.name: function.parameters or {} for function in called} if called else None
    one_call = request.parallel_tool_calls is False or isinstance(choice, NamedTool)
    parser, settings = chats.parser(schemas, one_call=one_call), _settings(request, chats, tools=bool(functions))
    inputs = Inputs(tuple(map(_shown, functions)), settings, _continues(request))
    if inputs.continues:
        parser = replace(parser, continued=_within(text_of(request.messages[-1].content), parser.formats.thinking))
    return ChatOptions(inputs, parser, called, _requires_call(choice), len(called) < len(functions))


def _requires_call(choice: ToolChoice | None) -> bool:
    if isinstance(choice, AllowedTools):
        return choice.allowed_tools.mode == "required"
    return choice == "required" or isinstance(choice, NamedTool)


def _functions(tools: Sequence[Tool] | None, choice: ToolChoice | None, chats: ChatSupport) -> tuple[Function, ...]:
    """Checks the tools and returns those that the model sees: all, or none with tool_choice none."""
    if not tools:
        if choice not in (None, "none", "auto"):
            raise wrong("tool_choice requires a call, but there are no tools; send tools")
        return ()
    if not chats.takes_tools or chats.formats.tools is None:
        raise wrong(f"tools are not supported: {chats.why_no_tools}; leave them out", "unsupported_parameter")
    functions = tuple(tool.function for tool in tools)
    names = [function.name for function in functions]
    for i, function in enumerate(functions):
        param = f"tools.{i}.function.parameters"
        if function.name in names[:i]:
            what = f"tools.{i}.function.name: another tool is named {function.name!r}, too; give each its own name"
            raise ApiError(400, what, param=f"tools.{i}.function.name")
        if depth(function.parameters) > MAX_DEPTH:
            raise wrong(f"{param} must not have more than {MAX_DEPTH} levels")
        if not is_of_object(function.parameters or {}):
            what = f'{param}.type must be "object", or left out: the arguments of a call are an object'
            raise ApiError(400, what, param=param)
        if '"x-guidance"' in json.dumps(function.parameters):  # llguidance takes its options from there
            what = 'must not have "x-guidance" anywhere, be it a name or a text: it changes how schemas are enforced'
            raise wrong(f"{param} {what}; leave it out")
    return () if choice == "none" else functions


def _callable(functions: tuple[Function, ...], choice: ToolChoice | None) -> tuple[Function, ...]:
    """Returns the callable tools: all, or those that tool_choice names."""
    match choice:
        case NamedTool():
            param, named = "tool_choice.function.name", [choice]
        case AllowedTools():
            param, named = "tool_choice.allowed_tools.tools", choice.allowed_tools.tools
        case _:
            return functions
    known, chosen = {function.name for function in functions}, {one.function.name for one in named}
    for name in sorted(chosen - known):
        raise wrong(f"{param}: no tool is named {name!r}; choose one of tools")
    return tuple(function for function in functions if function.name in chosen)


def _shown(function: Function) -> dict[str, Any]:
    """Returns a tool in the form that templates expect."""
    parameters = function.parameters or {"type": "object", "properties": {}}
    description = {} if function.description is None else {"description": function.description}
    return {"type": "function", "function": {"name": function.name, **description, "parameters": parameters}}


def _settings(request: ChatRequest, chats: ChatSupport, *, tools: bool) -> dict[str, Any]:
    """Returns the template's variables: the request's own, then those for thinking and effort, then the node's."""
    given = request.chat_template_kwargs or {}
    if what := chats.settings_error(given, tools=tools):
        raise wrong(f"chat_template_kwargs {what}")
    effort = _effort(request.reasoning_effort, chats, tools=tools)
    return {**chats.settings, **effort, **_thinking(request.enable_thinking, chats, tools=tools), **given}


def _thinking(thinks: bool | None, chats: ChatSupport, *, tools: bool) -> dict[str, Any]:
    """Returns the template's reasoning switches, if any; ApiError if reasoning cannot be switched off as requested."""
    if thinks is None:
        return {}
    found = dict.fromkeys(chats.switches(tools=tools), thinks)
    if not found and not thinks and chats.formats.thinking is not None:
        what = "enable_thinking: this model's chat template cannot switch thinking off; leave it out"
        raise ApiError(400, what, param="enable_thinking", code="unsupported_parameter")
    return found


def _effort(effort: Effort | None, chats: ChatSupport, *, tools: bool) -> dict[str, Any]:
    """Returns the variables for an effort that the template knows; ApiError if it knows none that are needed."""
    if effort is None:
        return {}
    found: dict[str, Any] = dict.fromkeys(chats.switches(tools=tools), effort != "none")
    if chats.knows("reasoning_effort", tools=tools) and (effort != "none" or not found):
        found["reasoning_effort"] = effort
    if not found and (effort != "none" or chats.formats.thinking is not None):
        what = "reasoning_effort is not supported: this model's chat template knows none; leave it out"
        raise ApiError(400, what, param="reasoning_effort", code="unsupported_parameter")
    return found


def turn_calls(calls: Sequence[ToolCall], where: str) -> list[dict[str, Any]]:
    """Returns a message's calls in the form that templates expect: with arguments as objects."""
    found = []
    for i, call in enumerate(calls):
        try:
            arguments = from_json(call.function.arguments or "{}")  # refuses half characters, unlike json
        except ValueError:
            arguments = None
        param = f"{where}.tool_calls.{i}.function.arguments"
        if not isinstance(arguments, dict):
            raise wrong(f"{param} must be a JSON object as a string, without half characters")
        if depth(arguments) > MAX_DEPTH:
            raise wrong(f"{param} must not have more than {MAX_DEPTH} levels")
        function = {"name": call.function.name, "arguments": arguments}
        found.append({"id": call.id, "type": "function", "function": function})
    return found


def _continues(request: ChatRequest) -> bool:
    """Returns whether a last message of the assistant is continued.

    ApiError if the request asks for what it has no message for, or for the continuation of calls.
    """
    messages, asked, begins = request.messages, request.continue_final_message, request.add_generation_prompt
    is_own = messages[-1].role == "assistant"
    if asked is not None and begins is asked:
        what = "continue_final_message and add_generation_prompt contradict each other; send one of them"
        raise ApiError(400, what, param="add_generation_prompt")
    if not is_own and (asked or begins is False):
        param = "continue_final_message" if asked else "add_generation_prompt"
        raise wrong(f"{param}: the last message is not the assistant's, so there is none to continue; leave it out")
    if not is_own or asked is False or begins:
        return False
    if messages[-1].tool_calls:
        param = f"messages.{len(messages) - 1}.tool_calls"
        raise wrong(f"{param}: calls cannot be continued; add their results after them")
    return True


def _within(text: str, thinking: ThinkingFormat | None) -> Continued:
    """Returns what a text is in the middle of."""
    is_open = thinking is not None and text.rfind(thinking.opens) > text.rfind(thinking.closes)
    return "thinking" if is_open else "text"


def check_free(options: ChatOptions, *, is_constrained: bool) -> None:
    """Raises ApiError if a constraint, which holds from an answer's beginning, would have to hold from its middle."""
    if options.inputs.continues and is_constrained:
        what = "messages: the last one is the assistant's, and a constrained answer cannot be continued"
        raise ApiError(400, f"{what}; add a message of the user, or leave out the constraint", param="messages")
