"""A vocabulary in llguidance's form: each token's bytes, special tokens and EOS tokens."""

from collections.abc import Collection
from dataclasses import dataclass, field

from llguidance import LLTokenizer

from goodspeed.engine.tokenizing.vocabulary import Vocabulary
from goodspeed.errors import ConstraintError


@dataclass(frozen=True, slots=True)
class TokenTable:
    """llguidance's tokenizer, read once per process; reading 150,000 tokens takes about a second."""

    tokenizer: LLTokenizer = field(repr=False)
    eos_ids: frozenset[int]

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> "TokenTable":
        """Reads a vocabulary's fast tokenizer, however it was loaded; ConstraintError as in `as_json` and `read`."""
        return cls.read(as_json(vocabulary), vocabulary.eos_ids)

    @classmethod
    def read(cls, tokenizer: str, eos_ids: Collection[int]) -> "TokenTable":
        """Reads the text of a tokenizer.json; ConstraintError if llguidance cannot map its tokens to bytes."""
        try:
            return cls(LLTokenizer(tokenizer, eos_token=list(eos_ids)), frozenset(eos_ids))
        except ValueError as error:
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
    return str(backend.to_str())
