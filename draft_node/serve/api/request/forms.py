"""Parameters that say which form an answer keeps, and what they are to the nodes: one `Constraint`, checked at once.

`response_format` is OpenAI's, `structured_outputs` vLLM's. Whether a form can be served is found out by compiling it,
beside the event loop, before anything else of the request costs time.
"""

import json
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from draft_node.serve.api.request.errors import ApiError
from draft_node.serve.api.request.fields import Strict
from draft_node.serve.service import Service
from goodspeed.errors import GrammarError
from goodspeed.wire.fields import MAX_CONSTRAINT_CHARS, ConstraintKind
from goodspeed.wire.generation import Constraint

Schema: TypeAlias = dict[str, Any]
Source: TypeAlias = Annotated[str, Field(min_length=1, max_length=MAX_CONSTRAINT_CHARS)]


class JsonSchema(Strict):
    """A named JSON schema, as OpenAI has it."""

    name: Annotated[str, Field(min_length=1, max_length=64)]
    schema_: Schema | None = Field(default=None, alias="schema", description="left out: any JSON object")
    description: Annotated[str, Field(max_length=4096)] | None = Field(default=None, description="taken, and not used")
    strict: bool | None = Field(default=None, description="the schema is kept in any case")


class ResponseFormat(Strict):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class StructuredOutputs(Strict):
    """Exactly one of these."""

    json_: Schema | Source | None = Field(default=None, alias="json", description="a JSON schema, or one as a string")
    regex: Source | None = None
    choice: Annotated[list[str], Field(fail_fast=True, min_length=1, max_length=4096)] | None = None
    grammar: Source | None = Field(default=None, description="in Lark's syntax, as llguidance has it")
    json_object: bool | None = Field(default=None, description="true: any JSON object")


class FormParameters(Strict):
    """What both kinds of completion take."""

    structured_outputs: StructuredOutputs | None = Field(default=None, description="exactly one of its members")


class NeutralForms(Strict):
    """Older names of `structured_outputs`."""

    guided_json: None = None
    guided_regex: None = None
    guided_choice: None = None
    guided_grammar: None = None
    guided_decoding_backend: None = None
    guided_whitespace_pattern: None = None


async def form_of(
    structured: StructuredOutputs | None,
    response_format: ResponseFormat | None,
    service: Service,
    user: str,
    *,
    ignore_eos: bool | None,
) -> Constraint | None:
    """Returns the form that the answer keeps, which can be served; None where it is free text.

    ApiError 400 with the library's reason for one that cannot be served, 429 where too many of this user's wait.
    """
    found = [each for each in (_of_format(response_format), _of_structured(structured)) if each is not None]
    if not found:
        return None
    if len(found) > 1:
        what = "response_format and structured_outputs both say which form the answer keeps; send one of them"
        raise ApiError(400, what, param="structured_outputs")
    [(param, constraint)] = found
    if ignore_eos:
        what = f"ignore_eos: an answer in a form ends where the form ends; leave it out, or {param.partition('.')[0]}"
        raise ApiError(400, what, param="ignore_eos")
    if len(constraint.source) > MAX_CONSTRAINT_CHARS:
        what = f"{param} has {len(constraint.source)} characters as JSON; {MAX_CONSTRAINT_CHARS} are the most"
        raise ApiError(400, what, param=param)
    try:
        await service.check_form(constraint, user)
    except GrammarError as error:
        raise ApiError(400, f"{param}: {error}", param=param, code="unsupported_form") from error
    return constraint


def _of_format(given: ResponseFormat | None) -> tuple[str, Constraint] | None:
    if given is None:
        return None
    if (given.json_schema is not None) is not (given.type == "json_schema"):
        what = 'response_format.json_schema must be given with "type": "json_schema", and only then'
        raise ApiError(400, what, param="response_format.json_schema")
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
