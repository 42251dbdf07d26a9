"""Chat templates by name, and names that no template setting may use. transformers renders templates in a sandbox."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

OF_PROCESSOR = "chat_template.json"
"""File in which older processors, of models that also read images, keep the template."""

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


def for_tools(templates: str | Mapping[str, str] | None, *, tools: bool) -> str | None:
    """Returns a tokenizer's chat template: with tools `tool_use` if there is one, else `default`."""
    if templates is None or isinstance(templates, str):
        return templates
    return (templates.get("tool_use") if tools else None) or templates.get("default")


def with_template(tokenizer: Any, folder: Path) -> Any:
    """Returns the tokenizer with its processor's chat template if it has none of its own."""
    path = folder / OF_PROCESSOR
    if not getattr(tokenizer, "chat_template", None) and path.is_file():
        template = json.loads(path.read_text(encoding="utf-8"))["chat_template"]
        if not isinstance(template, str):
            raise TypeError(f"{OF_PROCESSOR}: chat_template is no text")
        tokenizer.chat_template = template
    return tokenizer
