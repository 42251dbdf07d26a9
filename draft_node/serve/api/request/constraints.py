"""The form that an answer keeps: what it asks for, beside tools that are strict or have to be called, after thinking.

Knows nothing about how a form is kept.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from msgspec.structs import replace

from draft_node.parsing.formats import Formats
from draft_node.parsing.grammars import Form, Opened, Tool, grammar
from draft_node.serve.api.request.errors import ApiError
from draft_node.serve.api.request.tools import Talk
from draft_node.serve.chat_forms import ChatForms
from draft_node.serve.service import Service
from goodspeed.constraint.compiling import without_place
from goodspeed.errors import GrammarError
from goodspeed.wire.generation import Constraint


async def form_with_tools(
    form: Constraint | None,
    talk: Talk,
    service: Service,
    prompt: tuple[int, ...],
    user: str,
    *,
    param: str,
    ignore_eos: bool | None,
) -> Constraint | None:
    """Returns the form of all of an answer, which can be served; None where it is free. form: of its content, by param.

    ApiError 400 with the reason for one that cannot be served, 429 where too many of this user's wait.
    """
    opened = service.chats.opened(prompt, talk.speech)
    with _refused("tools"):
        kept = of_tools(form, talk, service.chats, opened)
    if kept is not None and ignore_eos:
        what = "ignore_eos: an answer with calls in a form ends where the form ends; leave it out"
        raise ApiError(400, what, param="ignore_eos")
    if kept is not None or form is None:
        return kept if kept is None else await _served(kept, "tools", service, user)
    with _refused(param):
        whole = _after_thinking(form, talk, service.chats, opened)
    return whole if whole.source == form.source else await _served(whole, param, service, user)


@contextmanager
def _refused(param: str) -> Iterator[None]:
    """A grammar that cannot be written is the fault of this parameter."""
    try:
        yield
    except ValueError as error:
        raise ApiError(400, f"{param}: {error}", param=param, code="unsupported_form") from error


async def _served(form: Constraint, param: str, service: Service, user: str) -> Constraint:
    """Returns the form, which was made here and compiles; ApiError 400 with the reason where it does not."""
    try:
        await service.check_form(form, user)
    except GrammarError as error:
        what = f"{param}: {without_place(str(error))}"
        raise ApiError(400, what, param=param, code="unsupported_form") from error
    return form


def of_tools(form: Constraint | None, talk: Talk, chats: ChatForms, opened: Opened) -> Constraint | None:
    """Returns the form of an answer with tools; None where they ask for none.

    opened: what the prompt says of thinking.
    """
    is_strict = any(function.strict for function in talk.functions)
    if talk.speech is None or not talk.functions or not (talk.is_forced or is_strict or form is not None):
        return None
    content = _content(form)
    if form is not None and content is None and not talk.is_forced:
        what = "structured_outputs and tools go together as JSON only; send response_format, or no tools"
        raise ApiError(400, what, param="structured_outputs")
    asked = Form(talk.speech.formats, chats.markers, opened, talk.is_forced, talk.speech.one_call, content)
    tools = [Tool(one.name, one.parameters or {}, strict=bool(one.strict)) for one in talk.functions]
    return Constraint("grammar", grammar(asked, tools), asked.after)


def _after_thinking(form: Constraint, talk: Talk, chats: ChatForms, opened: Opened) -> Constraint:
    """Returns a form of the content alone: what is thought before is free.

    Where the model may think or not, and the form is no JSON, it does not think.
    """
    formats = Formats(talk.speech.formats.thinking) if talk.speech is not None else Formats()
    asked = Form(formats, chats.markers, opened, content=_content(form))
    if opened == "closed":
        return form
    if asked.content is None:
        return replace(form, after=asked.after)
    return Constraint("grammar", grammar(asked, ()), asked.after)


def _content(form: Constraint | None) -> Mapping[str, Any] | None:
    """Returns the JSON schema of a form; None where it is no JSON."""
    if form is None or form.kind not in ("json_object", "json_schema"):
        return None
    schema = json.loads(form.source) if form.kind == "json_schema" else {"type": "object"}
    return schema if isinstance(schema, dict) else {}
