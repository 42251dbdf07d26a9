"""Builds the `Constraint` of an answer's content and tool calls, and checks that it compiles."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from draft_node.http.ask.caller import Caller
from draft_node.http.ask.chat_options import ChatOptions
from draft_node.http.schema.chat import (
    JsonSchema,
    ObjectFormat,
    ResponseFormat,
    SchemaFormat,
    StructuredOutputs,
    TextRequest,
)
from draft_node.http.schema.errors import ApiError, wrong
from draft_node.parsing.formats import Formats
from draft_node.parsing.grammars import GrammarSettings, Tool, grammar, loosened
from draft_node.service.chat_support import reasoning_state
from goodspeed.constraint.grammars import without_place
from goodspeed.errors import ConstraintError
from goodspeed.wire.fields import MAX_CONSTRAINT_CHARS, ConstraintKind
from goodspeed.wire.generation import Constraint


async def constraint_of_content(
    request: TextRequest, caller: Caller, response_format: ResponseFormat | None = None
) -> Constraint | None:
    """Returns the constraint of the answer's content, after a check; None: free text.

    ApiError 400 with llguidance's reason if the constraint cannot be served; 429 if too many of this user's wait.
    """
    both = _of_format(response_format), _of_structured(request.structured_outputs)
    found = [each for each in both if each is not None]
    if not found:
        return None
    if len(found) > 1:
        what = "response_format and structured_outputs both set the form of the answer; send one of them"
        raise ApiError(400, what, param="structured_outputs")
    [(param, constraint)] = found
    if request.ignore_eos:
        what = f"ignore_eos: a constrained answer ends where its form ends; leave it out, or {param.partition('.')[0]}"
        raise ApiError(400, what, param="ignore_eos")
    if len(constraint.source) > MAX_CONSTRAINT_CHARS:
        raise wrong(f"{param} has {len(constraint.source)} characters as JSON; {MAX_CONSTRAINT_CHARS} are the most")
    try:
        await caller.service.compiler.check(constraint, caller.user)
    except ConstraintError as error:
        raise _unsupported(param, error) from error
    return constraint


def _unsupported(param: str, why: object) -> ApiError:
    return ApiError(400, f"{param}: {why}", param=param, code="unsupported_form")


def _of_format(given: ResponseFormat | None) -> tuple[str, Constraint] | None:
    match given:
        case ObjectFormat(schema_=dict() as schema):
            return "response_format.schema", Constraint("json_schema", json.dumps(schema))
        case SchemaFormat(json_schema=JsonSchema(schema_=dict() as schema)):
            return "response_format.json_schema.schema", Constraint("json_schema", json.dumps(schema))
        case ObjectFormat() | SchemaFormat():
            return "response_format", Constraint("json_object")
    return None


KINDS: dict[str, ConstraintKind] = {
    "json": "json_schema",
    "regex": "regex",
    "choice": "choice",
    "grammar": "grammar",
    "json_object": "json_object",
}
"""Kinds of constraints by the members of `structured_outputs`."""


def _of_structured(given: StructuredOutputs | None) -> tuple[str, Constraint] | None:
    if given is None:
        return None
    named = {
        name: value for name, value in given.model_dump(by_alias=True).items() if name in KINDS and value is not None
    }
    if len(named) != 1:
        raise wrong("structured_outputs must have exactly one of json, regex, choice, grammar and json_object")
    [(name, value)] = named.items()
    source = value if isinstance(value, str) else "" if value is True else json.dumps(value)
    return f"structured_outputs.{name}", Constraint(KINDS[name], source)


async def constraint_of_answer(
    form: Constraint | None, options: ChatOptions, request: TextRequest, prompt: tuple[int, ...], caller: Caller
) -> Constraint | None:
    """Returns the constraint of the whole answer with reasoning and calls, after a check; None: free text.

    form: constraint of the content; if it is not JSON and reasoning is optional ("may"), the model cannot reason.
    ApiError 400 with the reason if the constraint cannot be served; 429 if too many of this user's wait.
    """
    chats, parser, content = caller.service.chats, options.parser, _content(form)
    reasoning = reasoning_state(chats.tokenizer, prompt, parser)
    is_strict = options.is_restricted or any(function.strict for function in options.functions)
    if options.functions and (options.is_forced or is_strict or form is not None):
        if request.ignore_eos:
            raise wrong("ignore_eos: an answer with constrained calls ends where its form ends; leave it out")
        if form is not None and content is None:
            raise wrong("structured_outputs with tools must be JSON; send response_format, or no tools")
        stops = caller.service.defaults(chat=True).stop
        whole = GrammarSettings(
            parser.formats, chats.markers, reasoning, options.is_forced, parser.one_call, content, stops
        )
        return await _with_calls(whole, options, caller)
    if form is None or reasoning == "closed":
        return form
    whole = GrammarSettings(Formats(parser.formats.thinking), chats.markers, reasoning, content=content)
    param = "response_format" if request.structured_outputs is None else "structured_outputs"
    if content is not None:
        return await _built(whole, (), param, caller)
    if reasoning == "open" and not whole.after:
        why = "this model's thinking ends without a token of its own, so only JSON can follow; send that"
        raise _unsupported(param, why)
    return replace(form, after=whole.after)


async def _built(form: GrammarSettings, tools: Sequence[Tool], param: str, caller: Caller) -> Constraint:
    """Builds the grammar of an answer, and checks it; ApiError 400 with the reason if it cannot be served."""
    try:
        built = Constraint("grammar", await caller.run(partial(grammar, form, tools)), form.after)
        await caller.service.compiler.check(built, caller.user)
    except (ValueError, ConstraintError) as error:
        raise _unsupported(param, without_place(str(error))) from error
    return built


MAX_BLAMED = 16
"""Most tools that are looked at one by one to name the one whose schema cannot be kept."""

NO_PARAMETERS = {"type": "object", "properties": {}, "additionalProperties": False}
"""The schema of a tool without one."""


async def _with_calls(form: GrammarSettings, options: ChatOptions, caller: Caller) -> Constraint:
    """Returns the constraint of an answer with tools, after a check; ApiError 400 if it cannot be served.

    If it cannot, and a call is required, all tools that are not strict are loosened. The error names the strict tool
    that cannot be served alone either, if it is among the first MAX_BLAMED.
    """
    tools = [
        Tool(one.name, NO_PARAMETERS if one.parameters is None else one.parameters, strict=bool(one.strict))
        for one in options.functions
    ]
    try:
        return await _built(form, tools, "tools", caller)
    except ApiError as error:
        if error.status != 400:
            raise
        for tool in [one for one in tools if one.strict][:MAX_BLAMED]:
            try:
                await _built(form, [tool], "tools", caller)
            except ApiError as of_one:
                if of_one.status == 400:
                    raise wrong(f"tools: {tool.name}: {str(of_one).removeprefix('tools: ')}", of_one.code) from None
        if all(tool.strict for tool in tools) or not options.is_forced:
            raise
    return await _built(form, [one if one.strict else loosened(one) for one in tools], "tools", caller)


def _content(form: Constraint | None) -> Mapping[str, Any] | None:
    """Returns the JSON schema of a constraint; None if it is no JSON."""
    if form is None or form.kind not in ("json_object", "json_schema"):
        return None
    schema = json.loads(form.source) if form.kind == "json_schema" else {"type": "object"}
    return schema if isinstance(schema, dict) else {}
