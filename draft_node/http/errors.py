"""Every error of a request as OpenAI's clients read it: status, message, type, param and code."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from pydantic import ValidationError
from pydantic_core import ErrorDetails
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from draft_node.http.fields import EMPTY, OF_ROLE, PART, PREDICTION, ROLE, SERVICE_TIER, UNKNOWN, UNSERVED
from goodspeed.errors import Busy, PromptError, RequestRefused, ServiceError
from goodspeed.node.web import error_body
from goodspeed.node.web.bodies import ErrorBody

RETRY_AFTER_S = {429: 1, 503: 5}

NOT_SERVED = re.compile(
    r"/v1/(embeddings|images|audio|videos|realtime|moderations|rerank|score|files|uploads|batches|fine_tuning|assistants"
    r"|threads|vector_stores|conversations|containers|evals)(/|\Z)"
)
"""Paths of the API that are not served. Proxies take 404 for a node that is broken, and leave it alone for a while."""

TYPES = {401: "invalid_request_error", 429: "rate_limit_error", 503: "service_unavailable"}

USERS_FAULT = {"prompt", "vocabulary", "unsupported", "constraint", "too_large", "malformed", "slo"}
"""Codes of refusals that the request brought upon itself."""


class ApiError(Exception):
    """An answer other than 200."""

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.body = error_body(
            message, type=TYPES.get(status, "invalid_request_error"), param=param, code=code or _code(status)
        )

    def response(self, headers: dict[str, str] | None = None) -> Response:
        retry = RETRY_AFTER_S.get(self.status)
        return JSONResponse(
            self.body, self.status, {**(headers or {}), **({"Retry-After": str(retry)} if retry else {})}
        )


class ClientGone(Exception):
    """The user disconnected: nobody reads the answer."""


def _code(status: int) -> str:
    return {404: "not_found", 405: "method_not_allowed", 413: "too_large", 415: "unsupported_media_type"}.get(
        status, "invalid_value"
    )


def of_service(error: ServiceError | PromptError) -> ApiError:
    match error:
        case Busy():
            return ApiError(429, error.what, code=error.code)
        case RequestRefused() if error.code in USERS_FAULT:
            return ApiError(400, error.what, code="unsupported_form" if error.code == "constraint" else error.code)
        case ServiceError():
            return ApiError(503, error.what, code=error.code)
        case _:
            return ApiError(400, str(error), param="prompt", code="prompt")


def of_validation(error: ValidationError) -> ApiError:
    """The first of what is wrong with a body."""
    errors = error.errors(include_url=False, include_input=False)
    first = _telling(errors)
    kind, context = first["type"], first.get("ctx", {})
    if kind == "json_invalid":
        return ApiError(400, f"the body is not valid JSON: {context.get('error', 'not JSON')}", code="invalid_json")
    param = _param(first["loc"])
    if first["loc"] == ("prompt",) and kind == "string_type":  # of no union: it may be nothing else
        kind = ONLY_TEXT
    name = param.partition(".")[0]
    if kind == UNKNOWN:
        param = f"{param}.{context['name']}".lstrip(".")[:128]
        return ApiError(400, f"{param!r} is not a known parameter; leave it out", param=param, code=UNKNOWN)
    if kind == OF_ROLE:
        param = f"{param}.{context['name']}"
        return ApiError(400, f"{param} {context['what']}", param=param, code=context["code"] or None)
    if not name:
        return ApiError(400, "the body must be a JSON object", code="invalid_json")
    if kind == PART:
        param = param.removesuffix(".type")
    message = sentence(param, kind, context)
    if is_unsupported(param):
        param = param if name == "messages" else name
        return ApiError(400, message, param=param, code="unsupported_parameter")
    if kind == PART:
        param = param.rpartition(".")[0]
    codes = {
        "missing": "missing_parameter",
        "none_required": "unsupported_parameter",
        UNSERVED: "unsupported_parameter",
    }
    return ApiError(400, message, param=param, code=codes.get(kind))


def _telling(errors: Sequence[ErrorDetails]) -> ErrorDetails:
    """The first error; for a message content that matches no branch of its union, the most deeply nested error."""
    first = errors[0]
    if first["loc"][:1] != ("messages",):
        return first
    alike = [one for one in errors if one["loc"][:3] == first["loc"][:3]]
    return max(alike, key=lambda one: (len(one["loc"]), not one["type"].endswith("_type")))


def _param(loc: Sequence[str | int]) -> str:
    """Dotted, without pydantic's own words for the branches of a union."""
    if loc and loc[0] in ("prompt", "stop"):
        return str(loc[0])
    parts = (str(part) for part in loc if isinstance(part, int) or re.fullmatch(r"\w{1,64}", part))
    return ".".join(part for part in parts if part != "str")


def install(app: FastAPI) -> None:
    """Has the application answer with these."""

    @app.exception_handler(ApiError)
    async def ours(request: Request, error: ApiError) -> Response:
        return error.response()

    @app.exception_handler(ServiceError)
    @app.exception_handler(PromptError)
    async def services(request: Request, error: ServiceError | PromptError) -> Response:
        return of_service(error).response()

    @app.exception_handler(ClientGone)
    async def gone(request: Request, error: ClientGone) -> Response:
        return Response(status_code=499)  # sent to nobody

    @app.exception_handler(HTTPException)
    async def frameworks(request: Request, error: HTTPException) -> Response:
        headers = dict(error.headers or {})
        if error.status_code == 404 and (found := NOT_SERVED.match(request.url.path)):
            what = f"/v1/{found[1]} is not served: this node only writes texts; GET / lists what there is"
            return ApiError(400, what, code="not_served").response()
        what = _route(error.status_code, request.method, request.url.path[:200], headers.get("Allow", ""))
        return ApiError(error.status_code, what or error.detail).response(headers)


def _route(status: int, method: str, path: str, allowed: str) -> str:
    """The message for 404 and 405; empty for other statuses."""
    if status == 404:
        return f"there is nothing at {path}; GET / lists what there is"
    if status == 405:
        return f"{method} {path} is not served" + (f"; use {allowed.replace(', ', ' or ')}" if allowed else "")
    return ""


REASONS = {
    400: "The request is wrong; `param` names what.",
    401: "No valid API key.",
    404: "No such route, or no such model.",
    405: "The route has another method.",
    413: "The body is too large.",
    415: "The body is not plain JSON.",
    429: "Too many texts are waiting; see Retry-After.",
    503: "Draining, or the verify node is away; see Retry-After.",
}


def declared(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Returns the error answers as the OpenAPI document declares them."""
    return {
        status: {"model": ErrorBody, "description": REASONS[status]}
        | ({"headers": {"Retry-After": {"schema": {"type": "string"}}}} if status in RETRY_AFTER_S else {})
        for status in statuses
    }


ROLES = "system, developer, user, assistant or tool"

ONE = "is not supported; leave it out"
SEVERAL = "are not supported; leave them out"

GUIDED = ("json", "regex", "choice", "grammar")
"""Older names of members of structured_outputs, after `guided_`."""

UNSUPPORTED = {
    "best_of": "must be 1, or left out; n asks for several choices",
    "suffix": ONE,
    **{f"guided_{kind}": f'is not supported; send structured_outputs: {{"{kind}": ...}}' for kind in GUIDED},
    **dict.fromkeys(("guided_decoding_backend", "guided_whitespace_pattern"), ONE),
    "functions": SEVERAL,
    "function_call": 'must be "none" or "auto"; tools have tool_choice',
    "modalities": 'must be ["text"]: nothing but text is written',
    **dict.fromkeys(("audio", "moderation", "prompt_cache_retention"), ONE),
    **dict.fromkeys(("web_search_options", "prompt_cache_options"), SEVERAL),
    **dict.fromkeys(("continue_final_message", "include_stop_str_in_output"), "must be false, or left out"),
    **dict.fromkeys(("skip_special_tokens", "spaces_between_special_tokens"), "must be true, or left out"),
    "use_beam_search": "must be false, or left out",
    "store": "must be false, or left out: no answer is kept",
    "add_generation_prompt": "must be true, or left out",
}
"""What follows the name of a parameter that is known and not supported (`schemas.NEUTRAL`)."""

UNSUPPORTED_IN_MESSAGES = {
    "annotations": SEVERAL,
    **dict.fromkeys(("function_call", "refusal", "audio"), ONE),
}

CHOICES = {
    "prompt": "a string, a list of strings, a list of token ids, or a list of such lists; none of them may be empty",
    "stop": "a string, or a list of at most 4; each has 1 to 256 characters",
    "messages": "a list of messages, each with a role and a content",
    "input": "a text, or a list of messages, function calls, their outputs and reasoning",
    "message": "an object with a role and a content",
    "role": ROLES,
    "content": "a string or a list of text parts",
    "part": 'an object like {"type": "text", "text": "..."}',
    "tokens": "a list of token ids",
    "tools": "a list of functions",
    "tool": 'an object like {"type": "function", "function": {"name": "...", "parameters": {...}}}',
    "tool function": "an object with a name, a description and parameters",
    **dict.fromkeys(("tool name", "call name"), "a name of 1 to 64 letters, digits, underscores, dots and dashes"),
    **dict.fromkeys(("tool type", "call type"), '"function"'),
    "tool parameters": "a JSON schema of an object",
    "call": 'an object like {"id": "...", "type": "function", "function": {"name": "...", "arguments": "{}"}}',
    "call function": "an object with a name and arguments",
    "call arguments": "a JSON object as a string",
    "call id": "a string",
    "text": "a string",
    "type": '"text"',
}
"""The text after "must be", for parameters that are required or take several types."""

PREDICATES = {
    **dict.fromkeys(("int_type", "int_from_float", "int_parsing", "int_parsing_size"), "must be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "must be a number"),
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "string_type": "must be a string",
    "string_too_long": "must have at most {max_length} characters",
    "string_unicode": "must be valid Unicode; remove lone surrogates",
    "list_type": "must be a list",
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "must be an object"),
    "too_long": "must have at most {max_length} members",
    "too_short": "must not be empty",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be less than {lt}",
    "value_error": "{error}",
    "literal_error": "must be {expected}",
    "none_required": "is reserved; leave it out",
}
"""What is said of any other parameter, by pydantic's name of the error and with its context."""

BOUNDS = frozenset({"too_long", "too_short", "string_too_long", "string_unicode"})
"""For these errors the text comes from `PREDICATES` even if the parameter is in `CHOICES`."""

ONLY_TEXT = "only_text"
"""What is said of a `prompt` that may be nothing but a string, as that of `/tokenize`."""

SPECIAL = {
    ONLY_TEXT: " must be a string",
    "missing": " must be given: {allowed}",
    EMPTY: " must not be null; send {allowed}",
    "item_role": ": {given} is not a role that is served; use system, developer, user or assistant",
    ROLE: ": {given} is not a role that is served; use " + ROLES,
    PART: ": {given} parts are not served; only text parts are served",
    UNSERVED: " {what}",
    "item": ": {given} items are not served; send message, function_call, function_call_output or reasoning",
    "text_part": ": {given} parts are not served; only text is: input_text or output_text",
    "tool": ": {given} tools are not served; only functions are",
    "include": ": {given} is not told; leave include out, or ask for reasoning.encrypted_content alone",
    "choice": ": {given} is no choice; send none, auto, required, or a function with its name",
    PREDICTION: ': {given} is not a kind of prediction that is served; send "content"',
    SERVICE_TIER: ": {given} is unknown; send auto, default, flex, priority or scale, or another tier as goodspeed.slo",
    "too_short content": " must not be an empty list; send a string, or at least one text part",
    "too_short messages": " must not be an empty list; send at least one message",
}
"""Errors, some of them at one place only, with what follows the name."""


def sentence(param: str, kind: str, context: Mapping[str, Any]) -> str:
    """About `param` (dotted), for an error that pydantic or `schemas.py` calls `kind`."""
    parts = param.split(".")
    allowed = CHOICES.get(_place(parts))
    if allowed is None and kind in ("missing", EMPTY):
        return f"{param} must be given" if kind == "missing" else f"{param} must not be null"
    known = SPECIAL.get(kind) or SPECIAL.get(f"{kind} {_place(parts)}")
    if known is not None:
        return f"{param}{known.format_map(_Shown(context, allowed=allowed or ''))}"
    if parts[0] in UNSUPPORTED:
        return f"{parts[0]} {UNSUPPORTED[parts[0]]}"
    if parts[0] == "messages" and len(parts) > 2 and parts[2] in UNSUPPORTED_IN_MESSAGES:
        return f"{'.'.join(parts[:3])} {UNSUPPORTED_IN_MESSAGES[parts[2]]}"
    if _place(parts) in CHOICES and kind not in BOUNDS:
        return f"{param} must be {CHOICES[_place(parts)]}"
    predicate = PREDICATES.get(kind, "is not valid; see /openapi.json")
    return f"{param} {predicate.format_map(_Shown(context))}"


def is_unsupported(param: str) -> bool:
    """Whether the parameter is known but accepted only at its neutral value."""
    parts = param.split(".")
    return parts[0] in UNSUPPORTED or (
        parts[0] == "messages" and len(parts) > 2 and parts[2] in UNSUPPORTED_IN_MESSAGES
    )


def _place(parts: Sequence[str]) -> str:
    """What `CHOICES` calls it; empty for most. (What users name themselves, in `metadata`, is none of these.)"""
    if len(parts) == 1:
        return parts[0]
    if parts[0] == "tools" or parts[2:3] == ["tool_calls"]:
        kind = "tool" if parts[0] == "tools" else "call"
        return kind if parts[-1].isdigit() else f"{kind} {parts[-1]}"
    if parts[0] != "messages":
        return ""
    return {"messages": "message", "content": "part"}.get(parts[-2], "") if parts[-1].isdigit() else parts[-1]


class _Shown(dict[str, Any]):
    """An error's context as a person reads it."""

    def __init__(self, context: Mapping[str, Any], **more: str) -> None:
        super().__init__(context, **more)

    def __getitem__(self, name: str) -> str:
        value = super().__getitem__(name)
        return f"{value:.10f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
