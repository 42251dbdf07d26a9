"""A small tokenizer with chat templates that know tools and thinking, in the manner of large families.

Byte-level, so that any text has tokens; the families' markers are tokens of their own, some of them special.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import torch  # noqa: F401 (before transformers, which would do without it from then on)
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from goodspeed.engine.tokenizing.text import num_tokens
from goodspeed.engine.tokenizing.vocabulary import Vocabulary

QWEN3 = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
    {{- '# Tools\\n<tools>' }}
    {%- for tool in tools %}{{- '\\n' + (tool | tojson) }}{%- endfor %}
    {{- '\\n</tools>\\nAnswer with <tool_call>\\n{"name": ..., "arguments": ...}\\n</tool_call><|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'tool' %}
        {{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n' }}
        {%- if message.reasoning_content is string and loop.last %}
            {{- '<think>\\n' + message.reasoning_content + '\\n</think>\\n\\n' }}
        {%- endif %}
        {{- message.content }}
        {%- for call in message.tool_calls or [] %}
            {{- '\\n<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
            {{- (call.function.arguments | tojson) + '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'user' %}
        {{- '<|im_start|>user\\n' + message.content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}"""
"""Of Qwen3's kind: the model opens its thinking itself, and `enable_thinking` switches it off."""

R1 = """\
{{- '<bos>' }}
{%- for message in messages %}{{- '<|' + message.role + '|>' + message.content }}{%- endfor %}
{{- '<|assistant|><think>\\n' }}"""
"""Of DeepSeek-R1's kind: the prompt opens the thinking, and there are no tools."""

MISTRAL = """\
{{- '<bos>' }}
{%- if tools %}{{- '[AVAILABLE_TOOLS]' + (tools | tojson) + '[/AVAILABLE_TOOLS]' }}{%- endif %}
{%- for message in messages %}
    {%- if message.tool_calls is defined %}
        {%- for call in message.tool_calls %}
            {%- if call.id | length != 9 %}{{- raise_exception('ids must have 9 characters') }}{%- endif %}
            {{- '[TOOL_CALLS]' + call.function.name + '[ARGS]' + (call.function.arguments | tojson) }}
        {%- endfor %}
    {%- else %}
        {{- '[INST]' + message.content + '[/INST]' }}
    {%- endif %}
{%- endfor %}"""
"""Of Mistral's kind: its markers are special tokens, and it checks the ids of calls."""

PLAIN = "{%- for one in messages %}{{- one.role + ': ' + one.content + '\\n' }}{%- endfor %}{{- 'assistant:' }}"
"""Knows neither tools nor thinking."""

MARKERS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
SPECIAL = ("<bos>", "<|im_start|>", "<|im_end|>", "<|python_tag|>", "[TOOL_CALLS]", "[ARGS]", "[THINK]", "[/THINK]")


def backend() -> Tokenizer:
    """256 bytes, a few merges, and the markers."""
    vocab = {char: i for i, char in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    merges = [("t", "h"), ("th", "e"), ('"', "}"), ("a", "r"), ("ar", "g"), ("<", "/")]
    vocab |= {left + right: 256 + i for i, (left, right) in enumerate(merges)}
    found = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    found.decoder = decoders.ByteLevel()
    found.add_special_tokens([AddedToken(one, special=True, normalized=False) for one in SPECIAL])
    found.add_tokens([AddedToken(one, special=False, normalized=False) for one in MARKERS])
    return found


def tokenizer(template: str | Mapping[str, str] | None = QWEN3) -> PreTrainedTokenizerFast:
    names = {"bos_token": "<bos>", "eos_token": "<|im_end|>", "chat_template": template}
    return PreTrainedTokenizerFast(tokenizer_object=backend(), **names)


def vocabulary() -> Vocabulary:
    """The vocabulary has this tokenizer; `<|im_end|>` ends a text."""
    (eos,) = ids_of("<|im_end|>")
    found = tokenizer()
    num = num_tokens(found)
    return Vocabulary(name="chats", tokenizer=found, tokenizer_fingerprint="chats", eos_ids=(eos,), num_tokens=num)


def save(folder: Path, template: str = QWEN3) -> Path:
    """Writes the files of such a tokenizer, as checkpoints have them."""
    backend().save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<bos>", "eos_token": "<|im_end|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "chat_template.jinja").write_text(template)
    return folder


_plain = cache(tokenizer)


def ids_of(text: str) -> list[int]:
    """Token ids of a text as a model writes it."""
    return list(_plain()(text, add_special_tokens=False)["input_ids"])


def function(name: str = "weather", strict: bool | None = None, **properties: dict[str, object]) -> dict[str, object]:
    """A tool for requests; its properties are all required."""
    schema = {
        "type": "object",
        "properties": properties or {"city": {"type": "string"}},
        "required": list(properties) or ["city"],
        "additionalProperties": False,
    }
    told = {"name": name, "description": f"The {name}.", "parameters": schema}
    return {"type": "function", "function": told if strict is None else {**told, "strict": strict}}
