"""Continues a last message of the assistant: its text is the end of the prompt, and the answer goes on from it."""

from dataclasses import replace

from draft_node.http.errors import ApiError
from draft_node.http.parts import text_of
from draft_node.http.prompts import continued
from draft_node.http.requests import ChatRequest
from draft_node.http.tools import ChatOptions
from draft_node.parsing.formats import ThinkingFormat
from draft_node.parsing.parser import Continued


def of_request(options: ChatOptions, request: ChatRequest) -> ChatOptions:
    """Returns the options of a chat whose last message may be the assistant's; ApiError if it cannot be continued."""
    inputs = continued(options.inputs, request)
    if not inputs.continues:
        return options
    within = _within(text_of(request.messages[-1].content), options.parser.formats.thinking)
    return replace(options, inputs=inputs, parser=replace(options.parser, continued=within))


def _within(text: str, thinking: ThinkingFormat | None) -> Continued:
    """Returns what a text is in the middle of."""
    is_open = thinking is not None and text.rfind(thinking.opens) > text.rfind(thinking.closes)
    return "thinking" if is_open else "text"


def check_free(options: ChatOptions, *, is_constrained: bool) -> None:
    """ApiError if a constraint, which holds from the beginning of an answer, would have to hold from its middle."""
    if options.inputs.continues and is_constrained:
        what = "messages: the last one is the assistant's, and a constrained answer cannot be continued"
        raise ApiError(400, f"{what}; add a message of the user, or leave out the constraint", param="messages")
