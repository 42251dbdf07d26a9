"""Converts text to token ids and back, and computes a fingerprint of what the ids mean, which two nodes compare.

Uses the tokenizer's own defaults: a prompt includes the special tokens that the tokenizer adds, and output is decoded
without special tokens.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Any

from goodspeed.errors import PromptError

MEANING = ("model", "normalizer", "pre_tokenizer", "decoder")
"""Parts of a tokenizer that define the text of an id; truncation, padding and chat templates do not."""

AFFIXES = ("continuing_subword_prefix", "end_of_word_suffix")
"""Settings of BPE in which an empty text means that there is none."""

PROBE = "A probe, 1 2 3."
"""Text encoded for the fingerprint: its ids include the special tokens that the tokenizer adds to a prompt."""

QUIETLY: Mapping[str, Any] = {"verbose": False}
"""Has the tokenizer log no warning of long texts, which are refused in our own words."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """Inputs of a chat template in addition to the messages: plain JSON values."""

    tools: tuple[Mapping[str, Any], ...] = ()  # as in OpenAI's API; a template gets None if empty
    settings: Mapping[str, Any] = field(default_factory=dict)  # the template's own variables, by name
    continues: bool = False  # the last message, the assistant's, goes on; else a turn of the assistant begins


NOTHING = Inputs()


def fingerprint(tokenizer: Any) -> str:
    """Returns a hash of the ids' meaning and of the ids added to a prompt; the same on every machine.

    Covers vocabulary, merges, normalisation, added tokens, and an encoded probe. The probe is included because a draft
    node encodes the prompts, and must add the ids that the target expects. Rows of a model beyond its tokenizer do not
    count, so that checkpoints with different padding agree.
    """
    added = {str(i): (token.content, token.special) for i, token in tokenizer.added_tokens_decoder.items()}
    parts: dict[str, Any] = {"added": added, "probe": tokenizer(PROBE, **QUIETLY)["input_ids"]}
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        described = json.loads(backend.to_str())
        parts |= {name: _meant(name, described.get(name)) for name in MEANING}
    else:
        parts |= {"class": type(tokenizer).__name__, "vocab": tokenizer.get_vocab()}
    canonical = json.dumps(parts, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return blake2b(canonical.encode(), digest_size=16).hexdigest()


def _meant(name: str, part: Any) -> Any:
    """Returns a part of a tokenizer with the default of each setting that changes neither ids nor texts: makers' files
    and transformers' classes write them differently."""
    if isinstance(part, list):
        return [_meant(name, each) for each in part]
    if not isinstance(part, dict):
        return part
    if name == "model":
        return {key: None if key in AFFIXES and value == "" else value for key, value in part.items()}
    if part.get("type") == "ByteLevel":
        ignored = ("trim_offsets", *(("add_prefix_space", "use_regex") if name == "decoder" else ()))
        return part | dict.fromkeys(ignored, True)
    return {key: _meant(name, value) for key, value in part.items()}


def num_tokens(tokenizer: Any) -> int:
    """Returns the tokenizer's highest id plus one."""
    return int(max(tokenizer.get_vocab().values(), default=-1)) + 1


def num_shared(tokenizer: Any, num_rows: int) -> int | None:
    """Returns the bound of the ids that a model with so many rows shares with a tokenizer; None: they do not belong
    together.

    A model may have more rows, as padding. It may lack rows only for added tokens, such as a `[PAD]` of a fine-tuning
    or Gemma 3's placeholder of an image: a text that does not spell them never has them.
    """
    lacking = {token_id for token_id in tokenizer.get_vocab().values() if token_id >= num_rows}
    if lacking - tokenizer.added_tokens_decoder.keys():
        return None
    return min(num_tokens(tokenizer), num_rows)


def check_ids(tokenizer: Any, token_ids: Sequence[int], num_known: int) -> None:
    """Raises PromptError for an id that the model does not have, and names it if a tokenizer is given."""
    if not token_ids or (min(token_ids) >= 0 and max(token_ids) < num_known):
        return
    token_id = next(each for each in token_ids if not 0 <= each < num_known)
    name = f" ({decode(tokenizer, [token_id], shows_special=True)[:80]!a})" if tokenizer and token_id >= 0 else ""
    raise PromptError(f"token {token_id}{name} is none of the model's, which are 0 to {num_known - 1}; leave it out")


def encode_prompt(tokenizer: Any, text: str) -> list[int]:
    """Returns a prompt's token ids, with the special tokens that the tokenizer adds by default."""
    if not isinstance(text, str) or not text:
        raise PromptError("the prompt is empty or not text; give at least one character")
    try:
        token_ids: list[int] = tokenizer(text, **QUIETLY)["input_ids"]
    except (UnicodeEncodeError, TypeError) as error:
        raise PromptError(f"the prompt is not valid Unicode ({error}); remove lone surrogates") from error
    if not token_ids:
        raise PromptError("the prompt has no tokens; give at least one character that is not ignored")
    return list(token_ids)


def encode_part(tokenizer: Any, text: str) -> list[int]:
    """Returns the token ids of a part of a text, without special tokens at either end."""
    try:
        token_ids: list[int] = tokenizer(text, add_special_tokens=False, **QUIETLY)["input_ids"]
    except (UnicodeEncodeError, TypeError) as error:
        raise PromptError(f"the text is not valid Unicode ({error}); remove lone surrogates") from error
    return list(token_ids)


def encode_chat(tokenizer: Any, messages: Sequence[Mapping[str, Any]], inputs: Inputs = NOTHING) -> list[int]:
    """Returns a conversation's token ids up to the assistant's turn, by the tokenizer's chat template.

    If the last message is to be continued, the ids end where its content ends. PromptError if there is no template, or
    if it refuses the conversation, or changes the end of that content.
    """
    if not messages:
        raise PromptError("the conversation is empty; give at least one message")
    if not getattr(tokenizer, "chat_template", None):
        raise PromptError("this tokenizer has no chat template; send a plain prompt, or use a model made for chat")
    try:
        render = partial(
            tokenizer.apply_chat_template,
            [dict(message) for message in messages],
            tools=list(inputs.tools) or None,
            add_generation_prompt=not inputs.continues,
            continue_final_message=inputs.continues,
            return_dict=False,
            tokenizer_kwargs=dict(QUIETLY),
            **inputs.settings,
        )
        if inputs.continues and not render(tokenize=False).endswith(messages[-1]["content"].lstrip()):
            raise PromptError(NOT_CONTINUED)
        token_ids = render(tokenize=True)
    except PromptError:
        raise
    except Exception as error:  # templates may raise anything to refuse a conversation
        if str(error).startswith("continue_final_message"):  # transformers' own refusal repeats the whole conversation
            raise PromptError(NOT_CONTINUED) from None
        raise PromptError(f"the chat template refuses this conversation: {error}") from error
    return list(token_ids)


NOT_CONTINUED = (
    "the last message is the assistant's, and the chat template changes its end, so that it cannot be continued; "
    "remove blanks at its end, or add a message of the user"
)


def encode(tokenizer: Any, text: str, *, chat: bool) -> list[int]:
    """Returns a prompt's token ids. chat: encodes it as the only message, a user's, of a conversation."""
    if chat:
        return encode_chat(tokenizer, [{"role": "user", "content": text}])
    return encode_prompt(tokenizer, text)


def leaves_blank(tokenizer: Any, prompt_ids: Sequence[int], *, chat: bool) -> bool:
    """True if an answer's leading whitespace belongs to the chat template and not to the answer."""
    return chat and not end_of(tokenizer, prompt_ids)[-1:].isspace()


def end_of(tokenizer: Any, token_ids: Sequence[int]) -> str:
    """Returns the text of a prompt's final eight tokens, special tokens included."""
    return decode(tokenizer, token_ids[-8:], shows_special=True)


def decode(tokenizer: Any, token_ids: Sequence[int], *, shows_special: bool = False) -> str:
    """Returns the text of generated ids, by default without special tokens; no whitespace is cleaned up."""
    is_skipped = not shows_special
    return str(tokenizer.decode(list(token_ids), skip_special_tokens=is_skipped, clean_up_tokenization_spaces=False))


def special_ids(tokenizer: Any) -> frozenset[int]:
    """Returns the ids of the special tokens, which by default are part of no text."""
    return frozenset(token_id for token_id, token in tokenizer.added_tokens_decoder.items() if token.special)
