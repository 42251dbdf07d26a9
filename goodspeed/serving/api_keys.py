"""API keys: reads key files (one key per line), and checks keys at a node."""

import hashlib
import hmac
import logging
import re
import time
from contextlib import suppress
from pathlib import Path

from goodspeed.errors import ConfigError, reason
from goodspeed.files import others_can_read
from goodspeed.untrusted import file_state, read_bytes

logger = logging.getLogger("goodspeed.api_keys")

ONE_A_LINE = "write a file with one key a line"

LOOK_S = 1.0
"""Least time between two checks of a node's key file, in seconds."""


MAX_BYTES = 16 << 20
"""Longest key file. A pipe, which a node reads at its start only, has no bound."""


def read(path: str, *, is_running: bool = False) -> list[str]:
    """Reads a file's keys, skipping blank lines and # comments. ConfigError for a bad key or no key.

    is_running: ConfigError for a pipe, too, since waiting for it would stop the node.
    """
    try:
        is_pipe = not (is_running or Path(path).is_file())
        content = Path(path).read_bytes() if is_pipe else read_bytes(path, MAX_BYTES)
        lines = content.decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--api-key {path}: cannot read it ({reason(error)}); {ONE_A_LINE}") from None
    keys = []
    for number, line in enumerate(map(str.strip, lines), 1):
        if not line or line.startswith("#"):
            continue
        if not re.fullmatch(r"[!-~]{8,512}", line):
            raise ConfigError(
                f"--api-key {path}: line {number} is no key; write 8 to 512 printable ASCII characters, no blanks"
            )
        keys.append(line)
    if not keys:
        raise ConfigError(f"--api-key {path}: the file has no key; {ONE_A_LINE}")
    return keys


class Keys:
    """A node's API keys as hashes, compared in constant time and never shown."""

    def __init__(self, keys: list[str]) -> None:
        self._digests = [_digest(key.encode()) for key in keys]
        self._path: str | None = None  # of the file that is read again when it changes
        self._seen: tuple[int, ...] | None = None  # the file's state when last read
        self._looked_at = 0.0

    @classmethod
    def of_file(cls, path: str) -> "Keys":
        """Reads the keys of a file, now and after each change of it. ConfigError if it is bad now."""
        seen = file_state(path)
        keys = cls(read(path))
        if Path(path).is_file():  # a pipe can be read only once
            keys._path, keys._seen = path, seen
            _warn_if_open(path)
        return keys

    def know(self, key: bytes) -> bool:
        """True for one of the keys. Compares with all keys, so that the time reveals nothing."""
        self._look()
        digest = _digest(key)
        return sum(hmac.compare_digest(digest, known) for known in self._digests) > 0

    def _look(self) -> None:
        """Reads a changed file, at most every LOOK_S. A bad or missing one leaves the keys as they were."""
        now = time.monotonic()
        if self._path is None or now - self._looked_at < LOOK_S:
            return
        self._looked_at = now
        if (seen := file_state(self._path)) == self._seen:
            return
        self._seen = seen
        try:
            keys = read(self._path, is_running=True)
        except ConfigError as error:
            logger.error("the API keys stay as they were", extra={"why": error})
            return
        self._digests = [_digest(key.encode()) for key in keys]
        _warn_if_open(self._path)
        logger.warning("the API keys were read again", extra={"file": self._path, "num_keys": len(keys)})


def _warn_if_open(path: str) -> None:
    with suppress(OSError):  # the file is gone again
        if others_can_read(path):
            logger.warning("other users can read the API keys; run chmod 600 on their file", extra={"path": path})


def _digest(key: bytes) -> bytes:
    return hashlib.blake2b(key).digest()
