"""The form that an answer has to keep since tools are strict, or have to be called.

Knows nothing about how a form is kept.
"""

from collections.abc import Mapping
from typing import Any

from draft_node.parsing.grammars import Form, Opened, Tool, grammar
from draft_node.serve.api.request.errors import ApiError
from draft_node.serve.api.request.tools import Talk
from draft_node.serve.chat_forms import ChatForms
from goodspeed.wire.fields import MAX_CONSTRAINT_CHARS
from goodspeed.wire.generation import Constraint


def of_tools(
    talk: Talk, chats: ChatForms, opened: Opened, content: Mapping[str, Any] | None = None
) -> Constraint | None:
    """Returns the form of an answer with tools; None where it may have any.

    opened: what the prompt says of thinking. content: the JSON schema of text that calls nothing.
    """
    if talk.speech is None or not (talk.is_forced or any(function.strict for function in talk.functions)):
        return None
    form = Form(
        talk.speech.formats,
        chats.markers,
        opened=opened,
        is_forced=talk.is_forced,
        one_call=talk.speech.one_call,
        content=content,
    )
    tools = [Tool(one.name, one.parameters or {}, strict=bool(one.strict)) for one in talk.functions]
    source = grammar(form, tools)
    if len(source) > MAX_CONSTRAINT_CHARS:
        what = f"tools: their schemas are too long; they come to {len(source)} of {MAX_CONSTRAINT_CHARS} characters"
        raise ApiError(400, what, param="tools")
    return Constraint("grammar", source, form.after)
