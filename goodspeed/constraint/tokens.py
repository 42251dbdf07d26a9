"""The tokens of a vocabulary as llguidance sees them: the bytes of each, special tokens, and those that end a text."""

from collections.abc import Collection
from dataclasses import dataclass, field

from llguidance import LLTokenizer

from goodspeed.engine.tokenizing.vocabulary import Vocabulary
from goodspeed.errors import ConstraintError


@dataclass(frozen=True, slots=True)
class TokenTable:
    """A tokenizer, read once for all constraints of a process; about a second for 150,000 tokens."""

    tokenizer: LLTokenizer = field(repr=False)
    eos_ids: frozenset[int]

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> "TokenTable":
        """Reads a vocabulary's fast tokenizer, however it was loaded; ConstraintError as `as_json` and `read`."""
        return cls.read(as_json(vocabulary), vocabulary.eos_ids)

    @classmethod
    def read(cls, tokenizer: str, eos_ids: Collection[int]) -> "TokenTable":
        """Reads the text of a tokenizer.json; ConstraintError where its tokens have no bytes of their own."""
        try:
            return cls(LLTokenizer(tokenizer, eos_token=list(eos_ids)), frozenset(eos_ids))
        except ValueError as error:
            raise ConstraintError(f"structured output cannot read this tokenizer: {error}") from error

    @property
    def num_words(self) -> int:
        """Words of 32 bits that have one for every token of the tokenizer; ids beyond are never allowed."""
        return -(-int(self.tokenizer.vocab_size) // 32)


def as_json(vocabulary: Vocabulary) -> str:
    """Returns the text of a vocabulary's tokenizer.json; ConstraintError where it has none, or no end of a text."""
    backend = getattr(vocabulary.tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ConstraintError("structured output needs a fast tokenizer (tokenizer.json); this checkpoint has none")
    if not vocabulary.eos_ids:
        raise ConstraintError("structured output needs a token that ends a text; name one as eos_token_id")
    return str(backend.to_str())
