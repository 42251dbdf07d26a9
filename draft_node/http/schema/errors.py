"""Errors in the OpenAI format: status, message, type, param and code; what pydantic finds wrong, in words."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from pydantic import ValidationError
from starlette.responses import Response
from starlette.types import Scope

from draft_node.http.schema.strict import LEFT_OUT, MEMBER
from goodspeed.errors import Busy, PromptError, RequestRefused, ServiceError
from goodspeed.serving.web.errors import error_answer

RETRY_AFTER_S = {429: 1, 503: 5}

CODES = {
    404: "not_found",
    405: "method_not_allowed",
    413: "too_large",
    415: "unsupported_media_type",
    500: "internal",
}
"""Codes of errors that have no more exact one."""

USERS_FAULT = {"prompt", "vocabulary", "unsupported", "constraint", "too_large", "malformed", "slo"}
"""Codes of refusals that are the request's fault: they answer 400."""


class ApiError(Exception):
    """An error answer."""

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code or CODES.get(status, "invalid_value")

    def response(self, scope: Scope, headers: dict[str, str] | None = None) -> Response:
        """Returns the answer, in the format for the request's path."""
        retry = RETRY_AFTER_S.get(self.status)
        headers = {**(headers or {}), **({"Retry-After": str(retry)} if retry else {})}
        return error_answer(scope, self.status, str(self), self.code, param=self.param, headers=headers)


def wrong(message: str, code: str | None = None) -> ApiError:
    """Returns the error for a wrong parameter, whose dotted name the message begins with."""
    return ApiError(400, message, param=re.split("[ :]", message, maxsplit=1)[0], code=code)


class ClientGone(Exception):
    """The user disconnected: no answer can be delivered."""


def of_service(error: ServiceError | PromptError) -> ApiError:
    """Returns the answer to an error of the service: 429, 400 or 503, with its code."""
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
    """Returns the error answer for a body's first wrong parameter.

    Of several errors of that parameter, as one for each branch of a union, the most deeply nested counts.
    """
    errors = error.errors(include_url=False, include_input=False)
    alike = [one for one in errors if one["loc"][:1] == errors[0]["loc"][:1]]
    found = max(alike, key=lambda one: (len(one["loc"]), not one["type"].endswith("_type")))
    kind, context, param = found["type"], found.get("ctx", {}), _param(found["loc"])
    if kind == "json_invalid":
        return ApiError(400, f"the body is not valid JSON: {context.get('error', 'not JSON')}", code="invalid_json")
    if kind == MEMBER:
        param = f"{param}.{context['name']}".lstrip(".")[:128]
        return ApiError(400, f"{param} {context['what']}", param=param, code=context["code"] or None)
    if not param:
        return ApiError(400, "the body must be a JSON object", code="invalid_json")
    if kind == "union_tag_invalid":
        tags = re.findall(r"\[(.*?)\]", context["expected_tags"])
        types, given = ", ".join(repr(tag) for tag in tags if not tag.startswith(LEFT_OUT)), context["tag"][1:-1]
        advice = INSTEAD_OF_TYPES.get(given) or f"send one of {types}"
        return ApiError(400, f"{param} has the type {given[:64]!a}, which is not supported; {advice}", param=param)
    above, _, place = param.rpartition(".")
    is_named = place in UNIONS and not (above and place in ("prompt", "input"))  # others have such members, too
    says = UNIONS[place] if kind.endswith("_type") and is_named and len(alike) > 1 else _sentence(found["msg"])
    code = "missing_parameter" if kind == "missing" else None
    return ApiError(400, f"{param} {says}", param=param, code=code)


INSTEAD_OF_TYPES = {"item_reference": "no item is kept here; send the item itself"}
"""Advice for unsupported types of parts; for others the supported types are named."""

UNIONS = {
    "prompt": "must be a string, a list of strings, a list of token ids, or a list of such lists; none of them empty",
    "stop": "must be a string, or a list of at most 4; each has 1 to 256 characters",
    **dict.fromkeys(("content", "system"), "must be a string or a list of text parts"),
    "input": "must be a string, or a list of messages, calls, their outputs and reasoning",
    "slo": "must be a tier's name, or an object with ttft_ms, tpot_ms or both",
    "tool_choice": 'must be "none", "auto", "required", or an object that names a function',
}
"""Messages for parameters of several types."""

WORDS = (
    (r"Field required", "must be given"),
    (r"Value error, ", ""),
    (r", unable to parse.*", ""),
    (r"^\w+ should ", "must "),
    (r"a valid dictionary.*", "an object"),
    (r"a valid boolean", "true or false"),
    (r"\bTrue$", "true"),
    (r"a valid integer", "a whole number"),
    (r"a valid (list|array)", "a list"),
    (r"a valid (number|string)", r"a \1"),
    (r" after validation, not \d+", ""),
    (r"less than or equal to", "at most"),
    (r"greater than or equal to", "at least"),
    (r"have at least 1 (item|character)", "not be empty"),
    (r"(\d) items?$", r"\1 members"),
)
"""Patterns of pydantic's messages, and their replacements."""


def _sentence(message: str) -> str:
    for pattern, words in WORDS:
        message = re.sub(pattern, words, message)
    return message


def _param(loc: Sequence[str | int]) -> str:
    """Returns a location's dotted name, without pydantic's names for union branches."""
    if loc and loc[0] in ("prompt", "stop"):
        return str(loc[0])
    parts = (str(part) for part in loc if isinstance(part, int) or re.fullmatch(r"[a-z_0-9]\w{0,63}", part))
    return ".".join(part for part in parts if part != "str")


Names: TypeAlias = Sequence[tuple[str, str | Callable[[re.Match[str]], str]]]
"""Pairs: a pattern of a chat request's parameter names, and the name that an endpoint has instead."""


@contextmanager
def renamed(names: Names) -> Iterator[None]:
    """Renames chat parameters in raised errors, except where a quotation mark stands directly before the name."""
    try:
        yield
    except (ValidationError, ApiError) as caught:
        error = of_validation(caught) if isinstance(caught, ValidationError) else caught
        message, param = str(error), error.param or ""
        for name, own in names:
            message, param = (re.sub(rf"(?<!['\"]){name}", own, said) for said in (message, param))
        raise ApiError(error.status, message, param=param or None, code=error.code) from None
