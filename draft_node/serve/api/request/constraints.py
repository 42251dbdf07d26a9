"""The form that an answer keeps: what it asks for, beside tools that are strict or have to be called, after thinking.

Knows nothing about how a form is kept.
"""

import json
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from draft_node.parsing.formats import Formats
from draft_node.parsing.grammars import Form, Opened, Tool, grammar
from draft_node.serve.api.request.errors import ApiError
from draft_node.serve.api.request.tools import Talk
from draft_node.serve.chat_forms import ChatForms
from draft_node.serve.service import Service
from goodspeed.errors import GrammarError
from goodspeed.wire.fields import MAX_CONSTRAINT_CHARS
from goodspeed.wire.generation import Constraint


async def form_with_tools(
    form: Constraint | None,
    talk: Talk,
    service: Service,
    prompt: tuple[int, ...],
    user: str,
    *,
    ignore_eos: bool | None,
) -> Constraint | None:
    """Returns the form of all of an answer, which can be served; None where it is free. form: of its content.

    ApiError 400 with the library's reason for one that cannot be served, 429 where too many of this user's wait.
    """
    opened = service.chats.opened(prompt, talk.speech)
    kept = of_tools(form, talk, service.chats, opened)
    if kept is None:
        return form if form is None else _after_thinking(form, talk, service.chats, opened)
    if ignore_eos:
        what = "ignore_eos: an answer with calls in a form ends where the form ends; leave it out"
        raise ApiError(400, what, param="ignore_eos")
    if len(kept.source) > MAX_CONSTRAINT_CHARS:
        what = (
            f"tools: their schemas are too long; they come to {len(kept.source)} of {MAX_CONSTRAINT_CHARS} characters"
        )
        raise ApiError(400, what, param="tools")
    try:
        await service.check_form(kept, user)
    except GrammarError as error:
        raise ApiError(400, f"tools: {error}", param="tools", code="unsupported_form") from error
    return kept


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
    source = grammar(asked, ())
    return Constraint("grammar", source, asked.after) if len(source) <= MAX_CONSTRAINT_CHARS else form


def _content(form: Constraint | None) -> Mapping[str, Any] | None:
    """Returns the JSON schema of a form; None where it is no JSON."""
    if form is None or form.kind not in ("json_object", "json_schema"):
        return None
    schema = json.loads(form.source) if form.kind == "json_schema" else {"type": "object"}
    return schema if isinstance(schema, dict) else {}
