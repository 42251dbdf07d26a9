"""API keys: reads key files (one key per line), and checks keys at a node."""

import hashlib
import hmac
import re
from pathlib import Path

from goodspeed.errors import ConfigError, reason

ONE_A_LINE = "write a file with one key a line"


def read(path: str) -> list[str]:
    """Reads a file's keys, skipping blank lines and # comments. ConfigError for a bad key or no key."""
    try:
        lines = Path(path).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--api-key {path}: cannot read it ({reason(error)}); {ONE_A_LINE}") from None
    keys = []
    for number, line in enumerate(map(str.strip, lines), 1):
        if not line or line.startswith("#"):
            continue
        if not is_key(line):
            raise ConfigError(
                f"--api-key {path}: line {number} is no key; write 8 to 512 printable ASCII characters, no blanks"
            )
        keys.append(line)
    if not keys:
        raise ConfigError(f"--api-key {path}: the file has no key; {ONE_A_LINE}")
    return keys


def is_key(text: str) -> bool:
    return re.fullmatch(r"[!-~]{8,512}", text) is not None


class Keys:
    """A node's API keys as hashes, compared in constant time and never shown."""

    def __init__(self, keys: list[str]) -> None:
        self._digests = [_digest(key.encode()) for key in keys]

    def know(self, key: bytes) -> bool:
        """True for one of the keys. Compares with all keys, so that the time reveals nothing."""
        digest = _digest(key)
        return sum(hmac.compare_digest(digest, known) for known in self._digests) > 0


def _digest(key: bytes) -> bytes:
    return hashlib.blake2b(key).digest()
