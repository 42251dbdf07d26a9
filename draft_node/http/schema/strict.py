"""Base model of all parts of request bodies: no type conversions, no NaN; unknown members are refused by name.

Accepts unknown members that request nothing: null, false (but for those in `ASKED_BY_FALSE`) and empty values, and
values in `NEUTRAL`. Ignores members in `IGNORED`, which a header of the answer lists, and any where the request
announces members that are unknown here.
"""

import difflib
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal, Self, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    ValidationInfo,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

MEMBER = "member"
"""Type of the error that `refused` returns, for a member of the object at the error's location."""

IGNORED = frozenset(
    {
        *("cache_control", "cache_prompt", "id_slot", "keep_alive", "ttl"),  # caching and placement
        *("chat_id", "request_id", "session_id", "litellm_metadata"),  # ids for other systems' logs
        *("user", "metadata", "safety_identifier", "prompt_cache_key"),  # the user: not stored
        *("prompt_cache_retention", "prompt_cache_options", "prompt_cache_breakpoint", "client_metadata"),
        *("store", "truncation"),  # no answer is stored; a prompt that is too long is refused
        "encrypted_content",  # reasoning is plain text
        *("include_obfuscation", "reasoning_summary_delivery"),  # options of streams
        *("defer_loading", "output_schema", "max_tool_calls"),  # about tools that only hosted services run
        *("provider", "safety_settings"),  # options of routers and of hosted models' filters
        *("parsed", "parsed_arguments", "index"),  # added by the official client when it sends an answer back
        *("annotations", "reasoning_details", "provider_specific_fields"),  # by other servers and clients
        *("verbosity", "budget_tokens", "prediction"),  # hints that reach no model
        *("timings_per_token", "return_progress"),  # more figures about the server's speed
        "is_error",  # of a tool's result, whose text says so, too
    }
)
"""Members that real clients send for other servers, anywhere in a body; they do not affect this server's answer."""

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "best_of": (1,),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    **dict.fromkeys(("skip_special_tokens", "spaces_between_special_tokens", "add_special_tokens"), (True,)),
    "add_generation_prompt": (True,),
    "verbosity": ("medium",),
    "truncation": ("disabled",),
    **dict.fromkeys(("presence_penalty", "frequency_penalty"), (0, 0.0)),
    "n": (1,),
    "top_logprobs": (0,),
    "priority": (0,),
    "service_tier": ("auto", "standard_only"),
    "caller": ({"type": "direct"},),  # of a call that an earlier answer had
    "speed": ("standard",),
    "display": ("summarized",),  # thinking is never left out
}
"""Values without effect, in addition to null, false and empty ones."""

ASKED_BY_FALSE = {
    "add_special_tokens": "send the prompt as token ids",
    "do_sample": "send temperature 0",
    **dict.fromkeys(("skip_special_tokens", "spaces_between_special_tokens"), ""),
    **dict.fromkeys(("include_reasoning", "enable_thinking", "think"), ""),
}
"""Members whose false asks for something, with advice."""

INSTEAD = {
    "best_of": "send n for several choices",
    "functions": "send tools",
    "function_call": "send tool_choice",
    **{f"guided_{kind}": "send structured_outputs" for kind in ("json", "regex", "choice", "grammar")},
    "grammar": "send structured_outputs",
    "json_schema": "send response_format",
    **dict.fromkeys(("previous_response_id", "conversation"), "no response is kept here; send all of it as input"),
    "slo": "send goodspeed.slo",
    "container": "nothing runs code here",
    "mcp_servers": "let the client call these servers, and send what they offer as tools",
    "output_format": "send output_config.format",
    "background": "a request waits for its response, or streams it",
    **dict.fromkeys(("system", "instructions"), "send a message of the system"),
    "extra_body": "send its members themselves",
}
"""Advice for unsupported members."""

ALIKE = (
    ("messages", "input", "prompt"),
    ("max_tokens", "max_output_tokens"),
    ("stop", "stop_sequences"),
    ("reasoning_effort", "reasoning.effort", "output_config.effort"),
    ("enable_thinking", "thinking", "think", "reasoning.effort"),
    ("response_format", "text.format", "output_config.format", "structured_outputs"),
)
"""Names of the same thing in the APIs that are served here."""

MAX_IGNORED = 64
"""Most ignored names that a header lists; beyond it unknown members are refused, announced or not."""

MAX_NAME = 64
"""Longer names of members are not compared with known ones, since that takes time."""


def refused(name: str, what: str, code: str = "") -> PydanticCustomError:
    """Returns the error for a member of the validated object. what: the message after the member's name."""
    return PydanticCustomError(MEMBER, "refused", {"name": name, "what": what, "code": code})


class Ignored(set[str]):
    """Names of a request's ignored members: the validation context of bodies."""

    takes_unknown = False  # the request announces members that are unknown here

    def takes(self, name: str) -> bool:
        """True if an unknown member is ignored: few are, whose names fit into a header."""
        if name in self:
            return self.takes_unknown
        is_short = re.fullmatch(r"[\w.-]{1,64}", name, re.ASCII) is not None
        return self.takes_unknown and is_short and len(self) < MAX_IGNORED


class Strict(BaseModel):
    """A part of a body. Validation context: the `Ignored` that receives ignored members' names, or None."""

    # Not extra="forbid", which creates an error per unknown field: a body can have very many.
    model_config = ConfigDict(
        extra="allow",
        strict=True,
        frozen=True,
        allow_inf_nan=False,
        json_schema_extra={"additionalProperties": False},
    )

    ignores: ClassVar[frozenset[str]] = IGNORED
    advice: ClassVar[Mapping[str, str]] = {}  # for unsupported members, where it differs from the usual one
    announcing: ClassVar[str] = ""  # of a whole body: header with which requests announce members that are unknown here

    @model_validator(mode="after")
    def _knows_all(self, info: ValidationInfo) -> Self:
        for name, value in (self.model_extra or {}).items():
            if not _asks(name, value, self):
                continue
            if name not in self.ignores:
                usual = ASKED_BY_FALSE.get(name) if value is False else INSTEAD.get(name)
                advice = self.advice.get(name, usual)
                advice = advice or (_known_as(name, type(self)) if len(name) <= MAX_NAME else None)
                if advice or not (isinstance(info.context, Ignored) and info.context.takes(name)):
                    what = f"is not a supported parameter; {advice or 'leave it out'}"
                    raise refused(name, what, "unknown_parameter")
            tell_ignored(name, info)
        return self


class LeftOut(BaseModel):
    """A part that only a hosted service runs or reads: the model does not see it, and its type is named as ignored."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    types: ClassVar[str] = ""  # pattern of the types of a union's branch

    type: Annotated[str, Field(pattern=r"^[a-z0-9_]{1,64}$")]

    @model_validator(mode="after")
    def _is_left_out(self, info: ValidationInfo) -> Self:
        tell_ignored(self.type, info)
        return self


class ByType:
    """Selects a union's branch by `type`: annotates the union. Tags have brackets, so that error messages omit them.

    A branch has the types that its member `type` names, or those of the pattern `types` of `LeftOut`; a `Literal` has
    its own.
    """

    def __init__(self, default: str = "", find: Callable[[Any, Any], Any] = lambda given, found: found) -> None:
        """default: type of what names none; find: changes the type that a part names."""
        self._default = default
        self._find = find

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        tags, patterns, choices = dict[str, str](), list[tuple[str, str]](), dict[Any, CoreSchema]()
        for branch in get_args(source):
            pattern = getattr(branch, "types", "")
            kind = branch if get_origin(branch) is Literal else branch.model_fields["type"].annotation
            names = [name for one in (kind, *get_args(kind)) for name in get_args(one) if isinstance(name, str)]
            tag = f"[{LEFT_OUT}{branch.__name__}]" if pattern else f"[{names[0]}]"
            choices[tag] = handler.generate_schema(branch)
            tags |= dict.fromkeys(() if pattern else names, tag)
            patterns += [(pattern, tag)] if pattern else []

        def tag_of(given: Any) -> str:
            found = given.get("type") if isinstance(given, dict) else getattr(given, "type", None)
            found = self._find(given, found or self._default)
            if not isinstance(found, str):
                return f"[{found}]"
            left_out = (tag for pattern, tag in patterns if re.fullmatch(pattern, found[:128]))
            return tags.get(found) or next(left_out, f"[{found}]")

        return core_schema.tagged_union_schema(choices, tag_of)


LEFT_OUT = "-"
"""Beginning of the tags of branches that are left out, so that no error advises them."""


def tell_ignored(name: str, info: ValidationInfo) -> None:
    """Adds a name to the ignored ones that the answer's header lists, unless these are many."""
    if info.context is not None and len(info.context) < MAX_IGNORED:
        info.context.add(name)


@lru_cache(maxsize=1024)  # a body has the same names in thousands of parts
def _known_as(name: str, part: type[Strict]) -> str | None:
    """Returns advice for a member of a part that is misspelt, or is one of another API."""
    known = [field.alias or own for own, field in part.model_fields.items()]
    for alike in ALIKE:
        if any(one.partition(".")[0] == name for one in alike):
            for one in alike:
                if one.partition(".")[0] in known:
                    return f"send {one}"
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
    return f"did you mean {near[0]}?" if near else None


def _asks(name: str, value: Any, part: Strict) -> bool:
    """Returns whether an unknown member asks for something; chat templates write special tokens, unlike prompts."""
    if value is False:
        prompt = getattr(part, "prompt", None) or [None]
        return name in ASKED_BY_FALSE and (name != "add_special_tokens" or isinstance(prompt[0], str))
    is_neutral = any(value == one and type(value) is type(one) for one in NEUTRAL.get(name, ()))
    return value is not None and value not in ("", [], {}) and not is_neutral


def few(most: int, names: str, what: str) -> BeforeValidator:
    """Refuses an object with too many members, or wrong names, by a single error: very many errors take very long.

    most: members; names: pattern of allowed names; what: message for a wrong name.
    """

    def check(given: object) -> object:
        if isinstance(given, dict) and len(given) > most:
            raise ValueError(f"must have at most {most} members")
        if isinstance(given, dict) and not all(re.fullmatch(names, key) for key in given):
            raise ValueError(what)
        return given

    return BeforeValidator(check)
