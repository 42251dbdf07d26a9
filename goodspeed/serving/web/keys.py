"""API keys in a node's memory."""

import hashlib
import hmac

from goodspeed.serving import api_keys


class Keys:
    """API keys as hashes, which are compared in constant time and never shown."""

    def __init__(self, keys: list[str]) -> None:
        self._digests = [_digest(key.encode()) for key in keys]

    def know(self, key: bytes) -> bool:
        """Whether this is one of the keys. Compares with all of them, so that the time taken tells nothing."""
        digest = _digest(key)
        return sum(hmac.compare_digest(digest, known) for known in self._digests) > 0


def _digest(key: bytes) -> bytes:
    return hashlib.blake2b(key).digest()


def read_keys(path: str) -> Keys:
    """Reads a file with one key a line; see `api_keys.read`."""
    return Keys(api_keys.read(path))
