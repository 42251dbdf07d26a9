"""Chat templates by name, and names that no template setting may use. transformers renders templates in a sandbox."""

from collections.abc import Mapping

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
