"""Training text as one shuffled stream of token ids.

A step of training reads the next block of the stream, so a run that resumes at a step needs to remember nothing else.
"""

import sys
from random import Random

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from goodspeed.embedded import prompts
from training import domains, tokenizer

Tokens = npt.NDArray[np.uint16]

# Share of the tokens. Code and docs are repeated, so a larger share of them would be learned by heart: the standard
# library has 1.8 and 0.45 million tokens.
MIXTURE = {
    "code": 0.20,
    "docs": 0.05,
    "math": 0.14,
    "sql": 0.11,
    "chat": 0.13,
    "json": 0.11,
    "convert": 0.11,
    "story": 0.15,
}
NUM_TOKENS = 24_000_000
BLOCK = 2048  # tokens a step on a CPU
BLOCK_OF_A_GPU = 1 << 15


def train_tokenizer() -> Tokenizer:
    """Trains the family's tokenizer on an equal amount of every domain's training text."""
    return tokenizer.train(doc.text for name in domains.NAMES for doc in domains.take(name, 1_500_000, held_out=False))


def training_documents(domain: str, num_tokens: int = NUM_TOKENS) -> list[domains.Document]:
    """All that a stream of `num_tokens` can take from a domain: enough even where a token has 4.2 characters.

    A document that says what a shipped prompt says, by chance, is left out.
    """
    taken = domains.take(domain, int(4.2 * MIXTURE[domain] * num_tokens), held_out=False)
    shipped = [one.prompt for one in prompts.load() if one.domain == domain]
    return [doc for doc in taken if not any(prompt in doc.text for prompt in shipped)]


def encode(tok: Tokenizer, docs: list[domains.Document], num_tokens: int) -> list[list[int]]:
    """Documents, each ending with END, of about `num_tokens` together; repeated where they are too few."""
    encoded: list[list[int]] = []
    total = 0
    while total < num_tokens:
        for coded in tok.encode_batch([doc.text for doc in docs]):
            encoded.append([*coded.ids, tokenizer.END_ID])
            total += len(coded.ids) + 1
            if total >= num_tokens:
                break
    return encoded


def build(tok: Tokenizer, num_tokens: int = NUM_TOKENS, seed: int = 0) -> Tokens:
    """All domains in the shares of MIXTURE, documents shuffled."""
    docs: list[list[int]] = []
    for domain, share in MIXTURE.items():
        docs += encode(tok, training_documents(domain, num_tokens), int(share * num_tokens))
        print(f"corpus: {domain} done", file=sys.stderr, flush=True)
    Random(seed).shuffle(docs)
    return np.concatenate([np.asarray(doc, dtype=np.uint16) for doc in docs])


def row_length(step: int) -> int:
    """Mostly short rows, which train fastest; one step in 16 is a single row of the full context."""
    return 2048 if step % 16 == 15 else 512 if step % 4 == 3 else 256


def block(tokens: Tokens, step: int, size: int = BLOCK) -> tuple[Tokens, Tokens]:
    """(inputs, next tokens) of a step, each [rows, row_length]."""
    start = step * size % (len(tokens) - size - 1)
    piece = tokens[start : start + size + 1]
    shape = (-1, min(row_length(step), size))
    return piece[:-1].reshape(shape), piece[1:].reshape(shape)
