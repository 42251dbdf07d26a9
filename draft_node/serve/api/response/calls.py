"""Tool calls in answers, whole and in streams. Their ids are new, in the form that the model's family has."""

import secrets
import string

from draft_node.parsing.formats import ToolFormat
from draft_node.parsing.parts import Call
from draft_node.serve.api.response.responses import CalledFunction, MadeCall

ALPHABET = string.ascii_letters + string.digits


def call_id(tools: ToolFormat | None) -> str:
    """Returns a new id; the templates of some families take those of their own form only."""
    form = tools or ToolFormat("", "json", ())
    return form.id_prefix + "".join(secrets.choice(ALPHABET) for _ in range(form.id_length))


def made(call: Call, tools: ToolFormat | None) -> MadeCall:
    """Returns a call as an answer has it."""
    function = CalledFunction(name=call.name, arguments=call.arguments)
    return MadeCall(id=call_id(tools), type="function", function=function)
