"""Texts without a model: what the target says next is a hash of the session's seed and of everything said before.

So what the target alone would write is known, and a target that was fed anything else says something else. A draft
model that is to be right knows what is right. Nothing here knows about sessions or rounds.
"""

from collections.abc import Iterable

from draft_node.core.generation import Generation

VOCAB = 31
STOP = 0
_MASK = (1 << 61) - 1
_WORD = (1 << 64) - 1
STEP = 1_000_003


def feed(state: int, token: int) -> int:
    """The state after one more token."""
    return (state * STEP + token + 7) & _MASK


def feed_all(state: int, tokens: Iterable[int]) -> int:
    for token in tokens:
        state = (state * STEP + token + 7) & _MASK
    return state


def seeded(state: int, first: int, num_tokens: int) -> int:
    """The state after so many tokens from `first` on, by the state that the same tokens lead to from 0.

    So what a memory keeps of a text need not depend on the seed, as with a real target.
    """
    return (state + first * pow(STEP, num_tokens, _MASK + 1)) & _MASK


def start(seed: int, target: int = 0) -> int:
    """The state before the first token; another target says something else from here on."""
    return ((seed + target) * 0x9E3779B97F4A7C15) & _MASK


def draw(state: int) -> tuple[int, float]:
    """The target's token in this state, and a number in [0, 1) that is independent of it.

    The upper 53 bits of a 64-bit hash are the number, what is left of the lower ones the token.
    """
    x = ((state ^ state >> 32) * 0xBF58476D1CE4E5B9) & _WORD
    x = ((x ^ x >> 29) * 0x94D049BB133111EB) & _WORD
    x ^= x >> 32
    return (x & 0x7FF) % VOCAB, (x >> 11) * 2.0**-53


def alone(request: Generation, context_len: int = 1 << 30, target: int = 0) -> tuple[int, ...]:
    """The text that this target writes by itself, without drafts."""
    length = len(request.prompt)
    state = feed_all(start(request.sampling.seed, target), request.prompt)
    tokens: list[int] = []
    for _ in range(min(request.max_tokens, context_len - length)):
        token, _ = draw(state)
        if token in request.stop_ids:
            break
        tokens.append(token)
        state = feed(state, token)
    return tuple(tokens)
