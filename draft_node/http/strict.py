"""The strict model that all parts of bodies are: no conversions, no NaN; an unknown member is refused by name.

Members that ask for nothing are taken whatever they are called: null, false and empty ones, and those of `NEUTRAL` at
the value that changes nothing. Those of `IGNORED` are ignored, which the answer's header says.
"""

import re
from typing import Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

MEMBER = "member"
"""The error that `refused` makes: of a member of the object at its place."""

IGNORED = frozenset(
    {
        *("cache_control", "cache_prompt", "id_slot", "keep_alive", "ttl"),  # what to keep in memory, and where
        *("chat_id", "request_id", "session_id", "litellm_metadata"),  # names for others' logs
        *("user", "metadata", "safety_identifier", "prompt_cache_key"),  # who asks: kept nowhere
        *("provider", "safety_settings"),  # whom a router is to ask, and what a hosted model is to refuse
        *("parsed", "parsed_arguments", "index"),  # what the official client adds to an answer that is sent back
        "verbosity",  # a hint; no model is told
    }
)
"""Members that real clients send for other servers, anywhere in a body: they ask for no other answer of this one."""

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "best_of": (1,),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    **dict.fromkeys(("skip_special_tokens", "spaces_between_special_tokens", "add_special_tokens"), (True,)),
    "add_generation_prompt": (True,),
    "verbosity": ("medium",),
    "truncation": ("disabled",),
    "include": (["reasoning.encrypted_content"],),  # thinking is told in any case, in plain text
    "top_logprobs": (0,),
}
"""Values that change nothing, beside null, false and empty ones."""

INSTEAD = {
    "best_of": "send n for several choices",
    "functions": "send tools",
    "function_call": "send tool_choice",
    **{f"guided_{kind}": "send structured_outputs" for kind in ("json", "regex", "choice", "grammar")},
    **dict.fromkeys(("previous_response_id", "conversation"), "no response is kept here; send all of it as input"),
    "store": "no answer is kept here",
    "background": "a response is made while its request waits, or is streamed",
}
"""Advice about members that are not served."""


def refused(name: str, what: str, code: str = "") -> PydanticCustomError:
    """Returns the error of a member of the object that is checked; `what` follows its name."""
    return PydanticCustomError(MEMBER, "refused", {"name": name, "what": what, "code": code})


class Strict(BaseModel):
    """A part of a body. Its context, where there is one, is the set of ignored members' names."""

    # Not extra="forbid", which makes an error of every unknown field: a body can have very many.
    model_config = ConfigDict(
        extra="allow",
        strict=True,
        frozen=True,
        allow_inf_nan=False,
        json_schema_extra={"additionalProperties": False},
    )

    @model_validator(mode="after")
    def _knows_all(self, info: ValidationInfo) -> Self:
        for name, value in (self.model_extra or {}).items():
            if value is None or value is False or value in ("", [], {}) or _is_neutral(name, value):
                continue
            if name not in IGNORED:
                advice = INSTEAD.get(name, "leave it out")
                raise refused(name, f"is not a parameter that is served here; {advice}", "unknown_parameter")
            if info.context is not None:
                info.context.add(name)
        return self


def _is_neutral(name: str, value: Any) -> bool:
    return any(value == one and type(value) is type(one) for one in NEUTRAL.get(name, ()))


def few(most: int, names: str = "", what: str = "") -> BeforeValidator:
    """Refuses an object with too many members, or other names, at once: very many errors take very long."""

    def check(given: object) -> object:
        if isinstance(given, dict) and len(given) > most:
            raise ValueError(f"must have at most {most} members")
        if isinstance(given, dict) and not all(re.fullmatch(names, key) for key in given):
            raise ValueError(what)
        return given

    return BeforeValidator(check)
