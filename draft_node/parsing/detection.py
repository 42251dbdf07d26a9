"""Tells from a chat template how a model writes its thinking and its calls: templates show the model its own form.

Knows nothing about tokenizers.
"""

import re

from draft_node.parsing.formats import THINKING, TOOLS, Formats

AUTO, NONE = "auto", "none"

OF_TOOLS = (
    ("mistral", r"\[TOOL_CALLS\]"),
    ("qwen3_coder", r"<function="),
    (NONE, r"<arg_key>"),  # GLM's own, in Hermes' markers
    ("hermes", r"<tool_call>"),
    ("llama3_json", r'<\|python_tag\|>|"parameters": dictionary of argument name'),
)
"""Formats with what only their templates say; the first that is found counts."""

OF_THINKING = (("think", r"</?think>"), ("mistral", r"\[THINK\]"))


def formats(template: str | None, *, tools: str = AUTO, thinking: str = AUTO) -> Formats:
    """Returns the formats of a model with this chat template; the names are `auto`, `none` or those of formats."""
    thinks, calls = _named(template, thinking, OF_THINKING), _named(template, tools, OF_TOOLS)
    return Formats(THINKING.get(thinks), TOOLS.get(calls))


def _named(template: str | None, asked: str, told: tuple[tuple[str, str], ...]) -> str:
    if asked != AUTO or not template:
        return asked
    return next((name for name, pattern in told if re.search(pattern, template)), NONE)


def knows(template: str | None, name: str) -> bool:
    """Returns whether a template mentions a variable."""
    return bool(template) and re.search(rf"\b{re.escape(name)}\b", template or "") is not None
