"""Schemas of the tools of Anthropic's API, and the members of its bodies that are ignored."""

import re
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import Discriminator, Field, Tag, ValidationInfo, model_validator

from draft_node.http.requests import Name, Schema, listed
from draft_node.http.strict import IGNORED, LeftOut, Strict, refused, tell_ignored

IGNORED_HERE = IGNORED | {
    *("context_management", "compaction", "task_budget", "speed", "inference_geo"),  # what a hosted model is to do
    *("fallbacks", "fallback_credit_token", "billing_policy", "user_profile_id", "diagnostics"),  # and on what terms
    *("eager_input_streaming", "defer_loading", "input_examples"),  # how tools are shown and called
    *("caller", "toolset_name", "clear_at", "encrypted_content", "signature", "tool_changes"),  # of blocks
    *("betas", "anthropic_beta", "anthropic_version"),  # headers that some clients send in the body
    *("display", "block_binding", "citations"),  # of thinking and documents
}
"""Members that Anthropic's clients send, and that change no text here."""


class OfMessages(Strict):
    """A part of a body of Anthropic's API."""

    ignores = IGNORED_HERE


class CustomTool(OfMessages):
    type: Literal["custom"] | None = None
    name: Name
    description: str | None = None
    input_schema: Schema
    strict: bool | None = Field(default=None, description="true: a call's input keeps the schema")
    allowed_callers: Annotated[list[str], listed(16)] | None = Field(default=None, description='has "direct"')

    @model_validator(mode="after")
    def _is_called_by_the_model(self, info: ValidationInfo) -> Self:
        callers = set(self.allowed_callers or ("direct",))
        if "direct" not in callers:
            raise refused("allowed_callers", 'must have "direct": no code that could call tools runs here')
        if len(callers) > 1:
            tell_ignored("allowed_callers", info)
        return self


class HostedTool(LeftOut):
    """A tool that Anthropic's service runs."""


class LearnedTool(LeftOut):
    """A tool that a client runs, and whose schema Anthropic's models have learned."""

    @model_validator(mode="after")
    def _is_unknown(self) -> Self:
        what = "is of a tool whose schema this model has not learned; send one of your own, with name and input_schema"
        raise refused("type", what)


HOSTED = re.compile(r"[a-z0-9_]{1,40}_\d{8}|tool_search_tool_[a-z0-9]+|mcp_toolset")
LEARNED = re.compile(r"(bash|text_editor|memory|(computer|browser)(_toolset)?)_\d{8}")


def _kind(given: Any) -> str:
    found = given.get("type") or "custom" if isinstance(given, dict) else getattr(given, "type", None) or "custom"
    if isinstance(found, str) and LEARNED.fullmatch(found):
        return "[bash_20250124]"
    return "[web_search_20250305]" if isinstance(found, str) and HOSTED.fullmatch(found) else f"[{found}]"


AnyTool: TypeAlias = Annotated[
    Annotated[CustomTool, Tag("[custom]")]
    | Annotated[HostedTool, Tag("[web_search_20250305]")]
    | Annotated[LearnedTool, Tag("[bash_20250124]")],
    Discriminator(_kind),
]
