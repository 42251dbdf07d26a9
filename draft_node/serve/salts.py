"""Which texts may share what was read of them, at either node: those of one user.

How long a first token takes tells whether somebody has sent the same prompt before. So a salt is a user's own, and
nobody who does not know this process's secret can make it: neither another user nor the verify node.
"""

import secrets
from hashlib import blake2b

SALT_BYTES = 16


class Salts:
    """Salts of this process, which it forgets with its end."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def of(self, user: str) -> bytes:
        """The salt of a user's texts; the empty name is that of whoever has this node to himself."""
        return blake2b(user.encode(), digest_size=SALT_BYTES, key=self._secret, person=b"cache salt").digest()
