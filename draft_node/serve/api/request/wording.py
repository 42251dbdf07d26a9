"""The one sentence that a user reads about a parameter: what is wrong with it, and what to send instead.

Knows nothing about statuses, codes or routes. What a value may be is checked in `schemas.py`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from draft_node.serve.api.request.fields import EMPTY, PART, PREDICTION, ROLE, SERVICE_TIER, UNSERVED

ROLES = "system, developer, user, assistant or tool"

ONE = "is not supported; leave it out"
SEVERAL = "are not supported; leave them out"

GUIDED = ("json", "regex", "choice", "grammar")
"""Older names of members of structured_outputs, after `guided_`."""

UNSUPPORTED = {
    "best_of": "must be 1, or left out; n asks for several choices",
    "suffix": ONE,
    **{f"guided_{kind}": f'is not supported; send structured_outputs: {{"{kind}": ...}}' for kind in GUIDED},
    **dict.fromkeys(("guided_decoding_backend", "guided_whitespace_pattern"), ONE),
    "functions": SEVERAL,
    "function_call": 'must be "none" or "auto"; tools have tool_choice',
    "modalities": 'must be ["text"]: nothing but text is written',
    **dict.fromkeys(("audio", "moderation", "prompt_cache_retention"), ONE),
    **dict.fromkeys(("web_search_options", "prompt_cache_options"), SEVERAL),
    **dict.fromkeys(("continue_final_message", "include_stop_str_in_output"), "must be false, or left out"),
    **dict.fromkeys(("skip_special_tokens", "spaces_between_special_tokens"), "must be true, or left out"),
    "use_beam_search": "must be false, or left out",
    "store": "must be false, or left out: no answer is kept",
    "add_generation_prompt": "must be true, or left out",
}
"""What follows the name of a parameter that is known and not supported (`schemas.NEUTRAL`)."""

UNSUPPORTED_IN_MESSAGES = {
    "annotations": SEVERAL,
    **dict.fromkeys(("function_call", "refusal", "audio"), ONE),
}

CHOICES = {
    "prompt": "a string, a list of strings, a list of token ids, or a list of such lists; none of them may be empty",
    "stop": "a string, or a list of at most 4; each has 1 to 256 characters",
    "messages": "a list of messages, each with a role and a content",
    "input": "a text, or a list of messages, function calls, their outputs and reasoning",
    "message": "an object with a role and a content",
    "role": ROLES,
    "content": "a string or a list of text parts",
    "part": 'an object like {"type": "text", "text": "..."}',
    "tokens": "a list of token ids",
    "tools": "a list of functions",
    "tool": 'an object like {"type": "function", "function": {"name": "...", "parameters": {...}}}',
    "tool function": "an object with a name, a description and parameters",
    **dict.fromkeys(("tool name", "call name"), "a name of 1 to 64 letters, digits, underscores, dots and dashes"),
    **dict.fromkeys(("tool type", "call type"), '"function"'),
    "tool parameters": "a JSON schema of an object",
    "call": 'an object like {"id": "...", "type": "function", "function": {"name": "...", "arguments": "{}"}}',
    "call function": "an object with a name and arguments",
    "call arguments": "a JSON object as a string",
    "call id": "a string",
    "text": "a string",
    "type": '"text"',
}
"""The text after "must be", for parameters that are required or take several types."""

PREDICATES = {
    **dict.fromkeys(("int_type", "int_from_float", "int_parsing", "int_parsing_size"), "must be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "must be a number"),
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "string_type": "must be a string",
    "string_too_long": "must have at most {max_length} characters",
    "string_unicode": "must be valid Unicode; remove lone surrogates",
    "list_type": "must be a list",
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "must be an object"),
    "too_long": "must have at most {max_length} members",
    "too_short": "must not be empty",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be less than {lt}",
    "value_error": "{error}",
    "literal_error": "must be {expected}",
    "none_required": "is reserved; leave it out",
}
"""What is said of any other parameter, by pydantic's name of the error and with its context."""

BOUNDS = frozenset({"too_long", "too_short", "string_too_long", "string_unicode"})
"""For these errors the text comes from `PREDICATES` even if the parameter is in `CHOICES`."""

ONLY_TEXT = "only_text"
"""What is said of a `prompt` that may be nothing but a string, as that of `/tokenize`."""

SPECIAL = {
    ONLY_TEXT: " must be a string",
    "missing": " must be given: {allowed}",
    EMPTY: " must not be null; send {allowed}",
    "item_role": ": {given} is not a role that is served; use system, developer, user or assistant",
    ROLE: ": {given} is not a role that is served; use " + ROLES,
    PART: ": {given} parts are not served; only text parts are served",
    UNSERVED: " {what}",
    "item": ": {given} items are not served; send message, function_call, function_call_output or reasoning",
    "text_part": ": {given} parts are not served; only text is: input_text or output_text",
    "tool": ": {given} tools are not served; only functions are",
    "include": ": {given} is not told; leave include out, or ask for reasoning.encrypted_content alone",
    "choice": ": {given} is no choice; send none, auto, required, or a function with its name",
    PREDICTION: ': {given} is not a kind of prediction that is served; send "content"',
    SERVICE_TIER: ": {given} is unknown; send auto, default, flex, priority or scale, or another tier as goodspeed.slo",
    "too_short content": " must not be an empty list; send a string, or at least one text part",
    "too_short messages": " must not be an empty list; send at least one message",
}
"""Errors, some of them at one place only, with what follows the name."""


def sentence(param: str, kind: str, context: Mapping[str, Any]) -> str:
    """About `param` (dotted), for an error that pydantic or `schemas.py` calls `kind`."""
    parts = param.split(".")
    allowed = CHOICES.get(_place(parts))
    if allowed is None and kind in ("missing", EMPTY):
        return f"{param} must be given" if kind == "missing" else f"{param} must not be null"
    known = SPECIAL.get(kind) or SPECIAL.get(f"{kind} {_place(parts)}")
    if known is not None:
        return f"{param}{known.format_map(_Shown(context, allowed=allowed or ''))}"
    if parts[0] in UNSUPPORTED:
        return f"{parts[0]} {UNSUPPORTED[parts[0]]}"
    if parts[0] == "messages" and len(parts) > 2 and parts[2] in UNSUPPORTED_IN_MESSAGES:
        return f"{'.'.join(parts[:3])} {UNSUPPORTED_IN_MESSAGES[parts[2]]}"
    if _place(parts) in CHOICES and kind not in BOUNDS:
        return f"{param} must be {CHOICES[_place(parts)]}"
    predicate = PREDICATES.get(kind, "is not valid; see /openapi.json")
    return f"{param} {predicate.format_map(_Shown(context))}"


def is_unsupported(param: str) -> bool:
    """Whether the parameter is known but accepted only at its neutral value."""
    parts = param.split(".")
    return parts[0] in UNSUPPORTED or (
        parts[0] == "messages" and len(parts) > 2 and parts[2] in UNSUPPORTED_IN_MESSAGES
    )


def _place(parts: Sequence[str]) -> str:
    """What `CHOICES` calls it; empty for most. (What users name themselves, in `metadata`, is none of these.)"""
    if len(parts) == 1:
        return parts[0]
    if parts[0] == "tools" or parts[2:3] == ["tool_calls"]:
        kind = "tool" if parts[0] == "tools" else "call"
        return kind if parts[-1].isdigit() else f"{kind} {parts[-1]}"
    if parts[0] != "messages":
        return ""
    return {"messages": "message", "content": "part"}.get(parts[-2], "") if parts[-1].isdigit() else parts[-1]


class _Shown(dict[str, Any]):
    """An error's context as a person reads it."""

    def __init__(self, context: Mapping[str, Any], **more: str) -> None:
        super().__init__(context, **more)

    def __getitem__(self, name: str) -> str:
        value = super().__getitem__(name)
        return f"{value:.10f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
