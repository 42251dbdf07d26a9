"""API keys, as the nodes keep them. Knows nothing about requests."""

import hashlib
import hmac

from goodspeed.node import api_keys


class Keys:
    """API keys, kept as hashes: they can be compared in constant time, and are never shown."""

    def __init__(self, keys: list[str]) -> None:
        self._digests = [_digest(key.encode()) for key in keys]

    def know(self, key: bytes) -> bool:
        """Looks at all of them, so that the time taken tells nothing."""
        digest = _digest(key)
        return sum(hmac.compare_digest(digest, known) for known in self._digests) > 0


def _digest(key: bytes) -> bytes:
    return hashlib.blake2b(key).digest()


def read_keys(path: str) -> Keys:
    """One key a line; blank lines and those that begin with # are left out. ConfigError without any, or a bad one."""
    return Keys(api_keys.read(path))
