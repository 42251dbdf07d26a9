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
    if not _continues(request):
        return options
    inputs = continued(options.inputs, request.messages)
    within = _within(text_of(request.messages[-1].content), options.parser.formats.thinking)
    return replace(options, inputs=inputs, parser=replace(options.parser, continued=within))


def _continues(request: ChatRequest) -> bool:
    """Returns whether the last message is continued: that of the assistant, unless the request asks for a new turn."""
    is_own = request.messages[-1].role == "assistant"
    asked, begins = request.continue_final_message, request.add_generation_prompt
    if asked is not None and begins is asked:
        what = "continue_final_message and add_generation_prompt contradict each other; send one of them"
        raise ApiError(400, what, param="add_generation_prompt")
    if not is_own and (asked or begins is False):
        param = "continue_final_message" if asked else "add_generation_prompt"
        what = f"{param}: the last message is not the assistant's, so there is none to continue; leave it out"
        raise ApiError(400, what, param=param)
    return is_own and asked is not False and not begins


def _within(text: str, thinking: ThinkingFormat | None) -> Continued:
    """Returns what a text is in the middle of."""
    is_open = thinking is not None and text.rfind(thinking.opens) > text.rfind(thinking.closes)
    return "thinking" if is_open else "text"


def check_free(options: ChatOptions, *, is_constrained: bool) -> None:
    """ApiError if a constraint, which holds from the beginning of an answer, would have to hold from its middle."""
    if options.inputs.continues and is_constrained:
        what = "messages: the last one is the assistant's, and a constrained answer cannot be continued"
        raise ApiError(400, f"{what}; add a message of the user, or leave out the constraint", param="messages")
