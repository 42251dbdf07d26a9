"""A vocabulary in llguidance's form: each token's bytes, special tokens and EOS tokens."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from llguidance import LLTokenizer

from goodspeed.engine.tokenizing.text import num_tokens
from goodspeed.engine.tokenizing.vocabulary import Vocabulary
from goodspeed.errors import ConstraintError

NO_TEXT = "\uffff"
"""Begins the name of a special token in llguidance's copy of the tokenizer: Unicode assigns it no character."""

_TAG = re.compile("<.*>", re.DOTALL)  # llguidance takes these added tokens for special
_HTML = re.compile(
    "</?(?:table|caption|thead|tbody|tfoot|tr|th|td|h[1-6]|ul|ol|li|p|br|hr|div|span|pre|code|blockquote|strong|em"
    "|b|i|u|s|sub|sup|a|img)>"
)
"""Tokens of text that are added ones in Gemma's tokenizers."""


@dataclass(frozen=True, slots=True)
class TokenTable:
    """llguidance's tokenizer, read once per process; reading 150,000 tokens takes about a second."""

    tokenizer: LLTokenizer = field(repr=False)
    eos_ids: frozenset[int]
    special_ids: Mapping[str, int] = field(repr=False)  # of tokens that are no text, by their names

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> "TokenTable":
        """Reads a vocabulary's fast tokenizer, however it was loaded; ConstraintError as in `as_json` and `read`."""
        return cls.read(as_json(vocabulary), vocabulary.eos_ids)

    @classmethod
    def read(cls, tokenizer: str, eos_ids: Collection[int]) -> "TokenTable":
        """Reads the text of a tokenizer.json; ConstraintError if llguidance cannot map its tokens to bytes."""
        try:
            renamed, special_ids = _without_names(tokenizer)
            return cls(LLTokenizer(renamed, eos_token=list(eos_ids)), frozenset(eos_ids), special_ids)
        except (ValueError, LookupError, TypeError) as error:
            raise ConstraintError(f"structured output cannot read this tokenizer: {error}") from error

    @property
    def num_words(self) -> int:
        """Length of a mask in 32-bit words, one bit per token; ids beyond the tokenizer are never allowed."""
        return -(-int(self.tokenizer.vocab_size) // 32)


def as_json(vocabulary: Vocabulary) -> str:
    """Returns the text of a vocabulary's tokenizer.json; ConstraintError if it has none, or no EOS token."""
    backend = getattr(vocabulary.tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ConstraintError("structured output needs a fast tokenizer (tokenizer.json); this checkpoint has none")
    if not vocabulary.eos_ids:
        raise ConstraintError("structured output needs a token that ends a text; name one as eos_token_id")
    described = str(backend.to_str())
    return described if num_tokens(vocabulary.tokenizer) <= vocabulary.num_tokens else _cut(described, vocabulary)


def _cut(tokenizer: str, vocabulary: Vocabulary) -> str:
    """Removes the added tokens that the model does not have: no text may be forced into them."""
    read, known = msgspec.json.decode(tokenizer), vocabulary.num_tokens
    read["added_tokens"] = [each for each in read["added_tokens"] if each["id"] < known]
    vocab = read["model"].get("vocab")
    if isinstance(vocab, dict):
        read["model"]["vocab"] = {name: token_id for name, token_id in vocab.items() if token_id < known}
    elif vocab is not None:
        read["model"]["vocab"] = vocab[:known]
    return msgspec.json.encode(read).decode()


def _without_names(tokenizer: str) -> tuple[str, dict[str, int]]:
    """Renames the special tokens of a tokenizer.json to what no text has; returns it, and their ids by name.

    llguidance tokenizes forced text with the tokenizer, but does not take a special token for its name's text: a
    constraint that forces this text would allow that token alone, and then be violated by it. Tokens for tags of HTML
    become ordinary ones, where the model's vocabulary has them.
    """
    read = msgspec.json.decode(tokenizer)
    model = read["model"]
    known, merges = model.get("vocab"), model.get("merges") or ()
    names = known if isinstance(known, dict) else {name for name, _ in known or ()}
    read["added_tokens"] = [
        each
        for each in read["added_tokens"]
        if each["special"] or each["content"] not in names or not _HTML.fullmatch(each["content"])
    ]
    special = [each for each in read["added_tokens"] if each["special"] or _TAG.fullmatch(each["content"])]
    special_ids = {each["content"]: each["id"] for each in special}
    for each in special:
        each |= {"content": NO_TEXT + each["content"], "special": True}

    def renamed(name: Any) -> Any:
        return NO_TEXT + name if name in special_ids else name

    if isinstance(known, dict):
        model["vocab"] = {renamed(name): token_id for name, token_id in known.items()}
    elif known is not None:
        model["vocab"] = [[renamed(name), score] for name, score in known]
    if merges:
        model["merges"] = [pair for pair in merges if special_ids.keys().isdisjoint(_names(pair))]
    if "unk_token" in model:
        model["unk_token"] = renamed(model["unk_token"])
    return msgspec.json.encode(read).decode(), special_ids


def _names(pair: str | list[str]) -> tuple[str, str, str]:
    """Returns the two tokens of a merge and the one that they become."""
    left, right = pair.split(" ") if isinstance(pair, str) else pair
    return left, right, left + right
