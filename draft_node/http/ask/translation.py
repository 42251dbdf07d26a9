"""Translates a request of `responses` or `messages` to a chat request, and the names in its errors back."""

from typing import Any

from pydantic import BaseModel

from draft_node.http.schema.chat import ChatRequest
from draft_node.http.schema.errors import Names, renamed


def without_type(given: BaseModel) -> dict[str, Any]:
    return given.model_dump(by_alias=True, exclude_none=True, exclude={"type"})


ALIKE = ("model", "temperature", "top_p", "top_k", "seed", "goodspeed")
"""Parameters with the same name and meaning in chat requests."""


def chat_request(request: BaseModel, asked: dict[str, Any], names: Names) -> ChatRequest:
    """Returns the chat request for the same text; ApiError, with the endpoint's parameter names, if chats refuse it.

    asked: parameters of the chat beside those that are ALIKE; None: not given.
    """
    given = {name: getattr(request, name, None) for name in ALIKE} | asked
    with renamed(names):
        return ChatRequest.model_validate({name: value for name, value in given.items() if value is not None})
