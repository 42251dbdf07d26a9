"""Chat templates by name, and the names in them that no setting may take. transformers renders them, in a sandbox."""

from collections.abc import Mapping

SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
"""Settings of a tokenizer that name special tokens, for chat templates as well."""

RESERVED = frozenset(
    {
        *("messages", "tools", "documents", "add_generation_prompt", "continue_final_message", "conversation"),
        *("chat_template", "tokenize", "padding", "truncation", "max_length", "return_tensors", "return_dict"),
        *("return_assistant_tokens_mask", "tokenizer_kwargs", "sanitize_control_tokens"),
        *("raise_exception", "strftime_now", "dict", "namespace", "range", "lipsum", "cycler", "joiner"),
    }
)
"""Names that are no settings: transformers' own, and those of the sandbox."""


def for_tools(templates: str | Mapping[str, str] | None, *, tools: bool) -> str | None:
    """Returns the template to use of those that a tokenizer has by name; one for tools is called `tool_use`."""
    if templates is None or isinstance(templates, str):
        return templates
    return (templates.get("tool_use") if tools else None) or templates.get("default")
