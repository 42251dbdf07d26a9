"""Short hashes of token ids: by one a draft says which text it continues. Knows nothing about messages."""

import sys
from array import array
from collections.abc import Sequence
from hashlib import blake2b


class TextDigest:
    """64-bit hash of a growing text of token ids; each call costs only the new tokens."""

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=8)
        self._num_tokens = 0

    def of(self, tokens: Sequence[int]) -> bytes:
        """Returns the hash of all tokens; they have to begin with the tokens of the last call."""
        ids = array("I", tokens[self._num_tokens :])
        if sys.byteorder == "big":
            ids.byteswap()
        self._hash.update(ids.tobytes())
        self._num_tokens = len(tokens)
        return self._hash.copy().digest()

    def followed_by(self, tokens: Sequence[int]) -> bytes:
        """Returns the hash of the last call's text followed by these tokens, and does not keep them."""
        longer = TextDigest()
        longer._hash = self._hash.copy()
        return longer.of(tokens)


def digest(tokens: Sequence[int]) -> bytes:
    """Returns a 64-bit hash of token ids; it distinguishes drafts that continue different texts."""
    return TextDigest().of(tokens)
