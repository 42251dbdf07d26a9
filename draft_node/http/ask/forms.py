"""Builds the `Constraint` of an answer's content and tool calls, and checks that it compiles."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from msgspec.structs import replace

from draft_node.http.ask.body import Turns
from draft_node.http.ask.options import ChatOptions
from draft_node.http.schema.chat import ResponseFormat, Schema, StructuredOutputs
from draft_node.http.schema.errors import ApiError
from draft_node.parsing.formats import Formats
from draft_node.parsing.grammars import Form, Opened, Tool, TooLong, grammar, loosened
from draft_node.service import chat_forms
from draft_node.service.chat_forms import ChatForms
from draft_node.service.service import Service
from goodspeed.constraint.compiling import without_place
from goodspeed.errors import ConstraintError
from goodspeed.wire.fields import MAX_CONSTRAINT_CHARS, ConstraintKind
from goodspeed.wire.generation import Constraint

MAX_TRIED = 8
"""Most tools that are not strict whose schemas are tried one by one, if all together cannot be served."""


async def form_of(
    structured: StructuredOutputs | None,
    response_format: ResponseFormat | None,
    service: Service,
    user: str,
    *,
    ignore_eos: bool | None,
) -> Constraint | None:
    """Returns the constraint of the answer's content, after a check; None: free text.

    ApiError 400 with llguidance's reason if the constraint cannot be served; 429 if too many of this user's wait.
    """
    found = [each for each in (_of_format(response_format), _of_structured(structured)) if each is not None]
    if not found:
        return None
    if len(found) > 1:
        what = "response_format and structured_outputs both set the form of the answer; send one of them"
        raise ApiError(400, what, param="structured_outputs")
    [(param, constraint)] = found
    if ignore_eos:
        what = f"ignore_eos: a constrained answer ends where its form ends; leave it out, or {param.partition('.')[0]}"
        raise ApiError(400, what, param="ignore_eos")
    if len(constraint.source) > MAX_CONSTRAINT_CHARS:
        what = f"{param} has {len(constraint.source)} characters as JSON; {MAX_CONSTRAINT_CHARS} are the most"
        raise ApiError(400, what, param=param)
    try:
        await service.check_form(constraint, user)
    except ConstraintError as error:
        raise ApiError(400, f"{param}: {error}", param=param, code="unsupported_form") from error
    return constraint


def _of_format(given: ResponseFormat | None) -> tuple[str, Constraint] | None:
    if given is None:
        return None
    if (given.json_schema is not None) is not (given.type == "json_schema"):
        what = 'response_format.json_schema must be given with "type": "json_schema", and only then'
        raise ApiError(400, what, param="response_format.json_schema")
    if given.schema_ is not None:
        if given.type != "json_object":
            what = 'response_format.schema must be given with "type": "json_object"; otherwise send json_schema'
            raise ApiError(400, what, param="response_format.schema")
        return "response_format.schema", Constraint("json_schema", json.dumps(given.schema_))
    if given.type == "text":
        return None
    if given.json_schema is None or given.json_schema.schema_ is None:
        return "response_format", Constraint("json_object")
    return "response_format.json_schema.schema", Constraint("json_schema", json.dumps(given.json_schema.schema_))


def _of_structured(given: StructuredOutputs | None) -> tuple[str, Constraint] | None:
    if given is None:
        return None
    if given.json_object is False:
        raise ApiError(400, "structured_outputs.json_object must be true, or left out", param="structured_outputs")
    members: list[tuple[str, ConstraintKind, str | None]] = [
        ("json", "json_schema", _as_source(given.json_)),
        ("regex", "regex", given.regex),
        ("choice", "choice", _as_source(given.choice)),
        ("grammar", "grammar", given.grammar),
        ("json_object", "json_object", "" if given.json_object else None),
    ]
    named = [(name, Constraint(kind, source)) for name, kind, source in members if source is not None]
    if len(named) != 1:
        what = "structured_outputs must have exactly one of json, regex, choice, grammar and json_object"
        raise ApiError(400, what, param="structured_outputs")
    [(name, constraint)] = named
    return f"structured_outputs.{name}", constraint


def _as_source(given: Schema | list[str] | str | None) -> str | None:
    return given if given is None or isinstance(given, str) else json.dumps(given)


async def form_with_tools(
    form: Constraint | None,
    options: ChatOptions,
    service: Service,
    prompt: tuple[int, ...],
    turns: Turns,
    *,
    param: str,
    ignore_eos: bool | None,
) -> Constraint | None:
    """Returns the constraint of the whole answer with reasoning and calls, after a check; None: free text.

    form: constraint of the content; param: the parameter that set `form`. ApiError 400 with the reason if the
    constraint cannot be served; 429 if too many of this user's wait.
    """
    opened = chat_forms.opened(service.chats.tokenizer, prompt, options.parser)
    if needs_form(form, options):
        if ignore_eos:
            what = "ignore_eos: an answer with constrained calls ends where its form ends; leave it out"
            raise ApiError(400, what, param="ignore_eos")
        return await _of_calls(form, options, service, opened, turns)
    if form is None:
        return None
    with _refused(param):
        whole = _after_thinking(form, options, service.chats, opened)
    return whole if whole.source == form.source else await _served(whole, param, service, turns.user)


@contextmanager
def _refused(param: str) -> Iterator[None]:
    """Converts a ValueError of `grammar` to ApiError 400 for this parameter."""
    try:
        yield
    except ValueError as error:
        raise ApiError(400, f"{param}: {error}", param=param, code="unsupported_form") from error


async def _served(form: Constraint, param: str, service: Service, user: str) -> Constraint:
    """Returns a generated constraint after a check; ApiError 400 with the reason if it cannot be served."""
    try:
        await service.check_form(form, user)
    except ConstraintError as error:
        what = f"{param}: {without_place(str(error))}"
        raise ApiError(400, what, param=param, code="unsupported_form") from error
    return form


async def _of_calls(
    form: Constraint | None, options: ChatOptions, service: Service, opened: Opened, turns: Turns
) -> Constraint:
    """Returns the constraint of an answer with tools, after a check; ApiError 400 if it cannot be served.

    If it cannot, a tool that is not strict is loosened if its schema alone cannot be served, if there are many, or if
    the schemas together are too long.
    """
    stops, tools = service.defaults(chat=True).stop, of_functions(options)

    async def served(several: list[Tool]) -> Constraint:
        with _refused("tools"):
            found = await turns.run(partial(of_tools, form, options, several, service.chats, opened, stops))
        return await _served(found, "tools", service, turns.user)

    async def is_served(tool: Tool) -> bool:
        try:
            return bool(await served([tool]))
        except ApiError as error:
            if error.status != 400:
                raise
            return False

    try:
        return await served(tools)
    except ApiError as error:
        loose = [tool for tool in tools if not tool.strict]
        if error.status != 400 or not loose or not options.is_forced:
            raise
        few = len(loose) <= MAX_TRIED and not isinstance(error.__cause__, TooLong)
    return await served([one if one.strict or (few and await is_served(one)) else loosened(one) for one in tools])


def needs_form(form: Constraint | None, options: ChatOptions) -> bool:
    """True if an answer's calls are constrained. form: constraint of the content."""
    is_strict = options.is_restricted or any(function.strict for function in options.functions)
    return bool(options.functions) and (options.is_forced or is_strict or form is not None)


def of_functions(options: ChatOptions) -> list[Tool]:
    return [Tool(one.name, one.parameters or {}, strict=bool(one.strict)) for one in options.functions]


def of_tools(
    form: Constraint | None,
    options: ChatOptions,
    tools: list[Tool],
    chats: ChatForms,
    opened: Opened,
    stops: tuple[str, ...],
) -> Constraint:
    """Returns the constraint of an answer with tools.

    form: constraint of the content; opened: state of reasoning at the prompt's end; stops: the target's stop strings.
    """
    content = _content(form)
    if form is not None and content is None:
        what = "structured_outputs with tools must be JSON; send response_format, or no tools"
        raise ApiError(400, what, param="structured_outputs")
    asked = Form(
        options.parser.formats,
        chats.markers,
        opened,
        options.is_forced,
        options.parser.one_call,
        content,
        stops,
    )
    return Constraint("grammar", grammar(asked, tools), asked.after)


def _after_thinking(form: Constraint, options: ChatOptions, chats: ChatForms, opened: Opened) -> Constraint:
    """Extends a constraint of the content so that reasoning before it is free.

    If reasoning is optional ("may") and the constraint is no JSON, the model cannot reason. ValueError if the prompt
    opened reasoning, the constraint is no JSON, and the closing marker is no token.
    """
    formats = Formats(options.parser.formats.thinking)
    asked = Form(formats, chats.markers, opened, content=_content(form))
    if opened == "closed":
        return form
    if asked.content is None:
        if opened == "open" and not asked.after:
            raise ValueError(
                "this model's thinking ends without a token of its own, so only JSON can follow; send that"
            )
        return replace(form, after=asked.after)
    return Constraint("grammar", grammar(asked, ()), asked.after)


def _content(form: Constraint | None) -> Mapping[str, Any] | None:
    """Returns the JSON schema of a constraint; None if it is no JSON."""
    if form is None or form.kind not in ("json_object", "json_schema"):
        return None
    schema = json.loads(form.source) if form.kind == "json_schema" else {"type": "object"}
    return schema if isinstance(schema, dict) else {}
