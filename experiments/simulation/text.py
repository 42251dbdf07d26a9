"""Texts without a model: what the target says next is a hash of its seed and of everything said before.

So what the target alone would write is known, and a target that was fed anything else says something else. A draft
model that is to be right knows what is right. Nothing here knows about sessions or rounds.
"""

from collections.abc import Iterable

from draft_node.actions import Request

VOCAB = 31
STOP = 0
START = 1
_MASK = (1 << 61) - 1
_WORD = (1 << 64) - 1


def feed(state: int, token: int) -> int:
    """The state after one more token."""
    return (state * 1_000_003 + token + 7) & _MASK


def feed_all(state: int, tokens: Iterable[int]) -> int:
    for token in tokens:
        state = (state * 1_000_003 + token + 7) & _MASK
    return state


def _hash(seed: int, state: int) -> int:
    x = ((state ^ (seed * 0x9E3779B97F4A7C15)) * 0xBF58476D1CE4E5B9) & _WORD
    x = ((x ^ x >> 30) * 0x94D049BB133111EB) & _WORD
    return x ^ x >> 31


def draw(seed: int, state: int) -> int:
    """What the target says in this state."""
    return _hash(seed, state) % VOCAB


def uniform(seed: int, state: int) -> float:
    """A number in [0, 1) that has nothing to do with what is drawn."""
    return (_hash(seed + 99, state) >> 11) * 2.0**-53


def next_token(seed: int, tokens: Iterable[int]) -> int:
    """What the target says after these tokens."""
    return draw(seed, feed_all(START, tokens))


def alone(request: Request, context_len: int = 1 << 30) -> tuple[int, ...]:
    """What the target writes by itself."""
    length = len(request.prompt)
    state = feed_all(START, request.prompt)
    tokens: list[int] = []
    for _ in range(min(request.max_tokens, context_len - length)):
        token = draw(request.sampling.seed, state)
        if token in request.stop_ids:
            break
        tokens.append(token)
        state = feed(state, token)
    return tuple(tokens)
