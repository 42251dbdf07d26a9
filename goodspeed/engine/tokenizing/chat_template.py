"""Chat templates by name, and names that no template setting may use. transformers renders templates in a sandbox."""

import re
from collections.abc import Mapping
from functools import lru_cache

from jinja2 import TemplateError
from jinja2.meta import find_undeclared_variables
from jinja2.sandbox import ImmutableSandboxedEnvironment

SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
"""Settings of a tokenizer that name special tokens, also for chat templates."""

RESERVED = frozenset(
    {
        *("messages", "tools", "documents", "add_generation_prompt", "continue_final_message", "conversation"),
        *("chat_template", "tokenize", "padding", "truncation", "max_length", "return_tensors", "return_dict"),
        *("return_assistant_tokens_mask", "tokenizer_kwargs", "sanitize_control_tokens"),
        *("raise_exception", "strftime_now", "dict", "namespace", "range", "lipsum", "cycler", "joiner"),
    }
)
"""Names that no setting may use: transformers' own, and those of the sandbox."""


_GENERATION = re.compile(r"\{%[-+]?\s*(?:end)?generation\s*[-+]?%\}")
"""Marks of an answer's text, an extension of transformers."""


@lru_cache(maxsize=16)
def variables(template: str) -> frozenset[str]:
    """Returns the names of the variables that a chat template uses; of one that cannot be parsed all of its words.

    A word in a text that the template writes, or an attribute such as `message.tools`, is no variable.
    """
    try:
        environment = ImmutableSandboxedEnvironment(extensions=["jinja2.ext.loopcontrols"])
        return frozenset(find_undeclared_variables(environment.parse(_GENERATION.sub("", template))))
    except (TemplateError, RecursionError):
        return frozenset(re.findall(r"\w+", template))


def for_tools(templates: str | Mapping[str, str] | None, *, tools: bool) -> str | None:
    """Returns a tokenizer's chat template: with tools `tool_use` if there is one, else `default`."""
    if templates is None or isinstance(templates, str):
        return templates
    return (templates.get("tool_use") if tools else None) or templates.get("default")
